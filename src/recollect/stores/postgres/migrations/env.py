"""Run by Alembic for each command, on the locked connection that `recollect.stores.postgres.migrations` hands over."""

from alembic import context

from recollect.stores.postgres.schema import VERSION_TABLE

context.configure(connection=context.config.attributes["connection"], version_table=VERSION_TABLE)
context.run_migrations()
