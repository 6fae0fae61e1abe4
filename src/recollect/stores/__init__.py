"""Memory stores, one module an engine. `recollect.open_store` imports the one an address names."""
