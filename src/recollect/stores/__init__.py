"""Memory stores, one package per engine. `recollect.open_store` imports the one an address names."""
