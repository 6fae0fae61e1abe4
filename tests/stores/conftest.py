from tests.stores.postgres_place import place, postgres

__all__ = ["place", "postgres"]
