"""Other people's stores, audited: an existing database, read through the store's own read method."""
