"""Alembic's entry: runs the migrations on the connection, and in the transaction, that `stores.upgrade` hands in."""

from alembic import context

connection = context.config.attributes["connection"]
context.configure(connection=connection, transactional_ddl=False)  # the transaction is the caller's
context.run_migrations()
