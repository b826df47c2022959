"""What Alembic runs around the steps. Connection and transaction belong to `holdfast.stores.upgrade`."""

from __future__ import annotations

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    version_table=context.config.attributes["version_table"],
)
context.run_migrations()
