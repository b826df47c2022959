"""The jobs, and what is found through their indexes.

Columns that only describe the present lease (`lease_owner`, `lease_token`, `lease_expires_at`) are null whenever the
job is not running. `lease_token` holds the *digest* of the token; the token itself exists only in the worker.
`transition` and `transition_detail` say what the last transition was; triggers copy them into the audit log.

Cost rules that the indexes follow: a heartbeat touches no indexed column, so it stays on its page; the ready index
holds only claimable rows, grouped by lane, so that a claim never walks over what it may not take.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    CheckConstraint,
    Column,
    ColumnElement,
    Float,
    Index,
    Integer,
    SmallInteger,
    Table,
    Text,
    literal_column,
    text,
)

from holdfast.domain.lifecycle import ACTIVE, CLAIMABLE, TERMINAL, State
from holdfast.stores.schema.base import in_states, metadata
from holdfast.stores.types import JobId, Json, Time, new_uuid7, store_now

CLAIMABLE_SQL = in_states(CLAIMABLE)
# Two nullable columns stand side by side in the lane index; '' is the lane of the jobs without a source.
SOURCE_LANE = "coalesce(source, '')"
UNSUCCESSFUL = (State.FAILED, State.CANCELLED)

# What holds of every row, besides what the lifecycle says.
JOB_RULES = (
    ("state", in_states(tuple(State))),
    ("finished", f"({in_states(TERMINAL)}) = (finished_at IS NOT NULL)"),
    ("priority", "priority BETWEEN -100 AND 100"),
    ("names", "task <> '' AND queue <> ''"),
    # Bounds for what is typed by hand: an endless lease or a time beyond what drivers can read would stop everybody.
    ("budgets", "max_attempts >= 1 AND max_crashes >= 1 AND lease_seconds > 0 AND lease_seconds <= 315360000"),
    ("timeout", "timeout_seconds > 0 AND timeout_seconds <= 315360000"),
    (
        "times",
        "run_after >= '0001-01-01T00:00:00.000000Z' AND run_after <= '9999-12-31T23:59:59.999999Z'"
        " AND coalesce(cancel_requested_at, run_after) <= '9999-12-31T23:59:59.999999Z'",
    ),
)

jobs = Table(
    "holdfast_jobs",
    metadata,
    Column("id", JobId, primary_key=True, server_default=new_uuid7()),
    Column("task", Text, nullable=False),
    Column("task_version", Text),
    Column("queue", Text, nullable=False, server_default="default"),
    Column("state", Text, nullable=False, server_default="pending"),
    Column("priority", SmallInteger, nullable=False, server_default=text("0")),
    Column("run_after", Time, nullable=False, server_default=store_now()),
    Column("payload", Json, nullable=False, server_default=text("'{}'")),
    Column("spec_hash", Text),
    Column("unique_key", Text),
    Column("source", Text),
    Column("attempt", Integer, nullable=False, server_default=text("0")),
    Column("failures", Integer, nullable=False, server_default=text("0")),
    Column("crashes", Integer, nullable=False, server_default=text("0")),
    Column("max_attempts", Integer, nullable=False, server_default=text("3")),
    Column("max_crashes", Integer, nullable=False, server_default=text("3")),
    Column("retry", Json),
    Column("timeout_seconds", Float),
    Column("lease_seconds", Float, nullable=False, server_default=text("60")),
    Column("lease_owner", Text),
    Column("lease_token", Text),
    Column("lease_expires_at", Time),
    Column("claimed_at", Time),
    Column("heartbeat_at", Time),
    Column("cancel_requested_at", Time),
    Column("progress", Json),
    Column("result", Json),
    Column("result_ref", Text),
    Column("last_error", Json),
    Column("traceparent", Text),
    Column("replay_of", JobId),
    Column("webhook", Json),  # who is told when the job has ended: url, and of which ends
    Column("seq", Integer, nullable=False, server_default=text("1")),
    Column("transition", Text, nullable=False, server_default="enqueued"),
    Column("transition_detail", Json),
    Column("created_at", Time, nullable=False, server_default=store_now()),
    Column("updated_at", Time, nullable=False, server_default=store_now()),
    Column("started_at", Time),
    Column("finished_at", Time),
    CheckConstraint(
        "(state = 'running') = (lease_token IS NOT NULL) AND (state = 'running') = (lease_expires_at IS NOT NULL)"
        " AND (state = 'running') = (lease_owner IS NOT NULL)",
        name="holdfast_jobs_running_has_lease",
    ),
    # Postgres reads constraints from their text in every statement, so there the audit judges these (`guards/`).
    *(CheckConstraint(rule, name=f"holdfast_jobs_{name}").ddl_if("sqlite") for name, rule in JOB_RULES),
    postgresql_with={
        # Room on every page for the next version of a row: heartbeats then never leave their page.
        "fillfactor": "80",
        "autovacuum_vacuum_scale_factor": "0.02",
        "autovacuum_vacuum_cost_delay": "0",
        "autovacuum_analyze_scale_factor": "0.05",
    },
)


def _partial_index(name: str, where: str, *columns: ColumnElement[Any], unique: bool = False) -> None:
    Index(f"holdfast_jobs_{name}", *columns, unique=unique, postgresql_where=text(where), sqlite_where=text(where))


_partial_index(
    "ready",
    CLAIMABLE_SQL,
    jobs.c.queue,
    jobs.c.priority.desc(),
    jobs.c.task,
    literal_column(SOURCE_LANE),
    jobs.c.run_after,
    jobs.c.id,
)
_partial_index("running", "state = 'running'", jobs.c.queue, jobs.c.id)
# Only jobs with a source pay for these two: they tell how much a source runs, and how much waits for it. SQLite counts
# the latter over the ready index: there every claim would take its jobs out of one index more.
_partial_index("source_running", "state = 'running' AND source IS NOT NULL", jobs.c.source)
POSTGRES_INDEXES = frozenset({"holdfast_jobs_source_ready"})  # there, and nowhere else
Index(
    "holdfast_jobs_source_ready",
    jobs.c.source,
    jobs.c.queue,
    jobs.c.run_after,
    postgresql_where=text(f"source IS NOT NULL AND {CLAIMABLE_SQL}"),
).ddl_if("postgresql")
_partial_index("unique", f"unique_key IS NOT NULL AND {in_states(ACTIVE)}", jobs.c.task, jobs.c.unique_key, unique=True)
_partial_index("reuse", "state = 'succeeded' AND spec_hash IS NOT NULL", jobs.c.spec_hash, jobs.c.finished_at)
_partial_index("dead", "state = 'failed'", jobs.c.id)
_partial_index("retryable", "state = 'retryable'", jobs.c.id)
_partial_index("replays", "replay_of IS NOT NULL", jobs.c.replay_of)
# Retention walks it group by group, oldest first; what a task usually takes is read from its young end.
_partial_index("finished", in_states(TERMINAL), jobs.c.queue, jobs.c.state, jobs.c.finished_at)
# What has ended, by task and by source, for whoever looks for a few among millions: one entry each in a job's life.
_partial_index("task_ended", in_states(TERMINAL), jobs.c.task, jobs.c.id)
_partial_index("source_ended", f"source IS NOT NULL AND {in_states(TERMINAL)}", jobs.c.source, jobs.c.id)
# The same of a spec, for those that `reuse` does not have: most jobs never pay for it.
_partial_index("spec_ended", f"spec_hash IS NOT NULL AND {in_states(UNSUCCESSFUL)}", jobs.c.spec_hash)
