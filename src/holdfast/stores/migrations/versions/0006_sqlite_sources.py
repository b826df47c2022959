"""On SQLite: one index less for a claim to keep. What waits for a source is counted over the index of ready jobs."""

from __future__ import annotations

from alembic import op

from holdfast.domain.errors import ConfigurationError

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        op.drop_index("holdfast_jobs_source_ready", "holdfast_jobs")


def downgrade() -> None:
    raise ConfigurationError(
        "Holdfast never downgrades its tables: restore a backup from before the upgrade, or keep the newer package."
    )
