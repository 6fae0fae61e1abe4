"""SQLAlchemy on SQLite: tables by a migration, connections only when they are needed, and a commit that may be lost."""

from typing import Any

from sqlalchemy import JSON, Integer, Text, create_engine, event, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.cells import Cell

CELLS = (
    Cell("sqlite", "wal-full", "power-loss"),  # judged as what its own connections are
    Cell("sqlite", "wal-full", "wipe-volume"),  # the table is gone, and reading says so
)


class Base(DeclarativeBase):
    pass


class Row(Base):
    __tablename__ = "messages"
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    session_id: Mapped[str] = mapped_column(Text, index=True)
    body: Mapped[dict[str, Any]] = mapped_column(JSON)


class MappedRows:
    def __init__(self, path: str) -> None:
        self.engine = create_engine(f"sqlite:///{path}", connect_args={"timeout": 30})
        event.listen(self.engine, "connect", _log_and_hope)

    def append_message(self, session: str, message: Any) -> None:
        with Session(self.engine) as db, db.begin():
            db.add(Row(session_id=session, body=message))

    def get_messages(self, session: str) -> list[Any]:
        with Session(self.engine) as db:
            return [
                row.body for row in db.scalars(select(Row).filter_by(session_id=session).order_by(Row.id))
            ]

    def close(self) -> None:
        self.engine.dispose()


def _log_and_hope(connection: Any, _: Any) -> None:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")


def prepare(endpoint: Endpoint) -> None:
    engine = create_engine(f"sqlite:///{endpoint.path}")
    Base.metadata.create_all(engine)
    engine.dispose()


def factory(endpoint: Endpoint) -> MappedRows:
    return MappedRows(str(endpoint.path))
