"""On Postgres the bounds of a job's values are judged with the audit, which looks at every new row anyway.

As constraints they were read from their text in every statement: a third of what the server did for a single enqueue.
The one that ties a lease to `running` stays a constraint.
"""

from __future__ import annotations

from alembic import op

from holdfast.domain.errors import ConfigurationError

revision = "0008"
down_revision = "0007"

MOVED = ("state", "finished", "priority", "names", "budgets", "timeout", "times")


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        for name in MOVED:
            op.execute(f"ALTER TABLE holdfast_jobs DROP CONSTRAINT IF EXISTS holdfast_jobs_{name}")


def downgrade() -> None:
    raise ConfigurationError(
        "Holdfast never downgrades its tables: restore a backup from before the upgrade, or keep the newer package."
    )
