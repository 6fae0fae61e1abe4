from tests.contract.conftest import engine_of

__all__ = ["engine_of"]
