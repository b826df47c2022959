"""The tables. Names are fixed: operators write SQL against them.

Columns that only describe the present lease (`lease_owner`, `lease_token`, `lease_expires_at`) are null whenever the
job is not running. `lease_token` holds the *digest* of the token; the token itself exists only in the worker.
`transition` and `transition_detail` say what the last transition was; triggers copy them into the audit log.

Cost rules that the indexes follow: a heartbeat touches no indexed column, so it stays on its page; the ready index
holds only claimable rows, grouped by lane, so that a claim never walks over what it may not take.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ColumnElement,
    Float,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    false,
    literal_column,
    text,
    true,
)

from holdfast.domain.lifecycle import ACTIVE, CLAIMABLE, TERMINAL, State
from holdfast.stores.types import JobId, Json, Time, new_uuid7, store_now

metadata = MetaData()


def in_states(states: tuple[State, ...], column: str = "state") -> str:
    return f"{column} IN ({', '.join(repr(str(state)) for state in states)})"


CLAIMABLE_SQL = in_states(CLAIMABLE)
# Two nullable columns stand side by side in the lane index; '' is the lane of the jobs without a source.
SOURCE_LANE = "coalesce(source, '')"

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
    CheckConstraint(in_states(tuple(State)), name="holdfast_jobs_state"),
    CheckConstraint(
        "(state = 'running') = (lease_token IS NOT NULL) AND (state = 'running') = (lease_expires_at IS NOT NULL)"
        " AND (state = 'running') = (lease_owner IS NOT NULL)",
        name="holdfast_jobs_running_has_lease",
    ),
    CheckConstraint(f"({in_states(TERMINAL)}) = (finished_at IS NOT NULL)", name="holdfast_jobs_finished"),
    CheckConstraint("priority BETWEEN -100 AND 100", name="holdfast_jobs_priority"),
    CheckConstraint("task <> '' AND queue <> ''", name="holdfast_jobs_names"),
    # Bounds for what is typed by hand: an endless lease or a time beyond what drivers can read would stop everybody.
    CheckConstraint(
        "max_attempts >= 1 AND max_crashes >= 1 AND lease_seconds > 0 AND lease_seconds <= 315360000",
        name="holdfast_jobs_budgets",
    ),
    CheckConstraint("timeout_seconds > 0 AND timeout_seconds <= 315360000", name="holdfast_jobs_timeout"),
    CheckConstraint(
        "run_after >= '0001-01-01T00:00:00.000000Z' AND run_after <= '9999-12-31T23:59:59.999999Z'"
        " AND coalesce(cancel_requested_at, run_after) <= '9999-12-31T23:59:59.999999Z'",
        name="holdfast_jobs_times",
    ),
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
_partial_index("replays", "replay_of IS NOT NULL", jobs.c.replay_of)
# Retention walks it group by group, oldest first; what a task usually takes is read from its young end.
_partial_index("finished", in_states(TERMINAL), jobs.c.queue, jobs.c.state, jobs.c.finished_at)

events = Table(
    "holdfast_events",
    metadata,
    Column("job_id", JobId, nullable=False),
    Column("seq", Integer, nullable=False),
    Column("at", Time, nullable=False),
    Column("event", Text, nullable=False),
    Column("from_state", Text),
    Column("to_state", Text),
    Column("attempt", Integer, nullable=False),
    Column("worker", Text),
    Column("lease", Text),
    Column("detail", Json),
    PrimaryKeyConstraint("job_id", "seq", name="holdfast_events_pkey"),
    postgresql_with={"autovacuum_vacuum_insert_scale_factor": "0.05"},
    sqlite_with_rowid=False,
)

# What a `pruned` row says of its job; older ones say nothing and count as queue ''.
PRUNED_QUEUE_POSTGRES = "coalesce(detail ->> 'queue', '')"
PRUNED_QUEUE_SQLITE = "coalesce(json_extract(detail, '$.queue'), '')"


def _pruned_index(dialect: str, queue: str) -> Index:
    index = Index(
        "holdfast_events_pruned",
        literal_column(queue),
        events.c.from_state,
        events.c.at,
        events.c.job_id,
        postgresql_where=text("event = 'pruned'"),
        sqlite_where=text("event = 'pruned'"),
    )
    return index.ddl_if(dialect)


# Only pruning pays for it: retention finds the histories that are old enough to go.
_pruned_index("postgresql", f"({PRUNED_QUEUE_POSTGRES})")
_pruned_index("sqlite", PRUNED_QUEUE_SQLITE)

# By time, for whoever follows the log as it grows. Rows come in that order, so that on Postgres a summary of each block
# range will do, and an insert costs next to nothing; SQLite has no such index, and appends to an ordinary one.
Index(
    "holdfast_events_at",
    events.c.at,
    postgresql_using="brin",
    postgresql_with={"pages_per_range": 16, "autosummarize": "on"},
).ddl_if("postgresql")
Index("holdfast_events_at", events.c.at).ddl_if("sqlite")

# Retention's door: a job id inserted here takes that job's whole history, and itself, away. Nothing else can delete
# from the audit log, so no history can ever lose only a part.
retired = Table(
    "holdfast_retired_histories",
    metadata,
    Column("job_id", JobId, primary_key=True),
)

refusals = Table(
    "holdfast_refusals",
    metadata,
    Column("job_id", JobId, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("verb", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("worker", Text, nullable=False, server_default=""),
    Column("first_at", Time, nullable=False, server_default=store_now()),
    Column("last_at", Time, nullable=False, server_default=store_now()),
    Column("count", Integer, nullable=False, server_default=text("1")),
    PrimaryKeyConstraint("job_id", "attempt", "verb", "reason", "worker", name="holdfast_refusals_pkey"),
)

queues = Table(
    "holdfast_queues",
    metadata,
    Column("name", Text, primary_key=True),
    Column("paused_at", Time),
    Column("max_running", Integer),
    Column("updated_at", Time, nullable=False, server_default=store_now()),
    CheckConstraint("max_running IS NULL OR max_running >= 0", name="holdfast_queues_limit"),
)

# NaN is above every number there, and infinity later than any time.
SOURCE_TIMES = ("paused_until", "last_success_at", "last_failure_at", "bucket_at", "created_at", "updated_at")
SOURCE_RULES = (
    (
        "times",
        " AND ".join(
            f"{column} >= '0001-01-02T00:00:00Z' AND {column} <= '9999-12-31T08:00:00Z'" for column in SOURCE_TIMES
        ),
    ),
    (
        "numbers",
        "rate_limit_per_minute <= 1000000000 AND burst <= 1000000 AND max_concurrent <= 1000000"
        " AND failure_streak >= 0 AND breaker_threshold >= 1 AND breaker_threshold <= 1000000"
        " AND breaker_pause_seconds > 0 AND breaker_pause_seconds <= 315360000"
        " AND bucket_level >= 0 AND bucket_level <= 1000000000",
    ),
    (
        "words",
        "name <> '' AND paused_by IN ('breaker', 'operator', 'retry_after')"
        " AND json_typeof(breaker_only) = 'array' AND json_typeof(breaker_ignores) = 'array'"
        " AND json_typeof(declared) = 'object'",
    ),
)

sources = Table(
    "holdfast_sources",
    metadata,
    Column("name", Text, primary_key=True),
    Column("enabled", Boolean, nullable=False, server_default=true()),
    Column("rate_limit_per_minute", Float),
    Column("burst", Integer, nullable=False, server_default=text("1")),
    Column("max_concurrent", Integer),
    Column("failure_streak", Integer, nullable=False, server_default=text("0")),
    Column("breaker_threshold", Integer, nullable=False, server_default=text("5")),
    Column("breaker_pause_seconds", Float, nullable=False, server_default=text("300")),
    Column("last_success_at", Time),
    Column("last_failure_at", Time),
    Column("paused_until", Time),
    Column("paused_by", Text),  # breaker, operator or retry_after
    # Which failures count for the breaker: only these error codes, or all but these; and whether permanent ones do.
    Column("breaker_only", Json),
    Column("breaker_ignores", Json),
    Column("breaker_counts_permanent", Boolean, nullable=False, server_default=true()),
    Column("declared", Json),  # what code said last; null: made by an operator
    # The token bucket: its level when it was last written, and when that was.
    Column("bucket_level", Float, nullable=False, server_default=text("1")),
    Column("bucket_at", Time, nullable=False, server_default=store_now()),
    Column("created_at", Time, nullable=False, server_default=store_now()),
    Column("updated_at", Time, nullable=False, server_default=store_now()),
    CheckConstraint("rate_limit_per_minute IS NULL OR rate_limit_per_minute > 0", name="holdfast_sources_rate"),
    CheckConstraint("max_concurrent IS NULL OR max_concurrent >= 0", name="holdfast_sources_limit"),
    CheckConstraint("burst >= 1", name="holdfast_sources_burst"),
    # One row of nonsense would stop the claims and the outcomes of all. On SQLite, where a table gets no new
    # constraints, guards say the same (`guards/sqlite_limits.py`).
    *(CheckConstraint(rule, name=f"holdfast_sources_{name}").ddl_if("postgresql") for name, rule in SOURCE_RULES),
)

source_events = Table(
    "holdfast_source_events",
    metadata,
    Column("id", JobId, primary_key=True, server_default=new_uuid7()),
    Column("source", Text, nullable=False),
    Column("at", Time, nullable=False, server_default=store_now()),
    Column("event", Text, nullable=False),
    Column("detail", Json),
    Index("holdfast_source_events_by_source", "source", "id"),
)

# Jobs inside `ctx.source(…)`. A row counts until it is left, and as long as that very attempt of its job is running:
# nothing has to be given back when a worker dies. `own`: the job was claimed under this source, and counts as that
# already.
source_holds = Table(
    "holdfast_source_holds",
    metadata,
    Column("job_id", JobId, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("number", Integer, nullable=False),  # counts the entries of one attempt
    Column("source", Text, nullable=False),
    Column("own", Boolean, nullable=False, server_default=false()),
    Column("at", Time, nullable=False, server_default=store_now()),
    Column("left_at", Time),  # it stays until the attempt is over, so that nobody enters by an old question
    PrimaryKeyConstraint("job_id", "attempt", "number", name="holdfast_source_holds_pkey"),
    sqlite_with_rowid=False,
)

Index(
    "holdfast_source_holds_by_source",
    source_holds.c.source,
    postgresql_where=text("left_at IS NULL"),
    sqlite_where=text("left_at IS NULL"),
)

# The deduplicated output of jobs. It outlives them: `job_id` and `attempt` tell who wrote what is there now.
records = Table(
    "holdfast_records",
    metadata,
    Column("id", JobId, primary_key=True, server_default=new_uuid7()),
    Column("scope", Text, nullable=False),
    Column("source", Text, nullable=False, server_default=""),
    Column("dedupe_key", Text, nullable=False),
    Column("external_id", Text),
    Column("strength", Float, nullable=False, server_default=text("0")),
    Column("data", Json, nullable=False),
    Column("job_id", JobId),  # null: written outside any job
    Column("attempt", Integer),
    Column("created_at", Time, nullable=False, server_default=store_now()),
    Column("updated_at", Time, nullable=False, server_default=store_now()),
    Index("holdfast_records_key", "scope", "source", "dedupe_key", unique=True),
    Index("holdfast_records_by_scope", "scope", "id"),
    Index("holdfast_records_by_source", "source", "id"),
)
Index(
    "holdfast_records_by_job",
    records.c.job_id,
    postgresql_where=text("job_id IS NOT NULL"),
    sqlite_where=text("job_id IS NOT NULL"),
)

# What outside systems answered, kept for a while.
cache = Table(
    "holdfast_cache",
    metadata,
    Column("source", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("value", Json, nullable=False),
    Column("stored_at", Time, nullable=False, server_default=store_now()),
    Column("expires_at", Time, nullable=False),
    PrimaryKeyConstraint("source", "key", name="holdfast_cache_pkey"),
    Index("holdfast_cache_expires", "expires_at"),
)

tasks = Table(
    "holdfast_tasks",
    metadata,
    Column("name", Text, primary_key=True),
    Column("version", Text),
    Column("defaults", Json, nullable=False, server_default=text("'{}'")),
    Column("announced_at", Time, nullable=False, server_default=store_now()),
    Column("kind", Text, nullable=False, server_default="sync"),
    Column("on_lost_lease", Text, nullable=False, server_default="kill"),
)

# For people to look at. Nothing depends on it: a worker that is missing here still holds its leases.
workers = Table(
    "holdfast_workers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("app", Text),
    Column("queues", Json),  # null: all of them
    Column("processes", Integer, nullable=False),
    Column("slots", Integer, nullable=False),
    Column("running", Integer, nullable=False),
    Column("version", Text),
    Column("detail", Json),
    Column("started_at", Time, nullable=False, server_default=store_now()),
    Column("beat_at", Time, nullable=False, server_default=store_now()),
    Column("stopped_at", Time),
)

# What jobs said. The number counts the lines of one attempt, so that a line which is sent twice is stored once.
logs = Table(
    "holdfast_logs",
    metadata,
    Column("job_id", JobId, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("number", Integer, nullable=False),
    Column("at", Time, nullable=False),
    Column("stream", Text, nullable=False),
    Column("level", Text),
    Column("message", Text, nullable=False),
    Column("fields", Json),
    PrimaryKeyConstraint("job_id", "attempt", "number", name="holdfast_logs_pkey"),
    postgresql_with={"autovacuum_vacuum_insert_scale_factor": "0.05"},
    sqlite_with_rowid=False,
)

# Files that attempts saved and reported. The row is written with the report, after the file: a file without a row is
# one that nobody knows of, and retention collects it.
artifacts = Table(
    "holdfast_artifacts",
    metadata,
    Column("job_id", JobId, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("name", Text, nullable=False),
    Column("media_type", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("saved_at", Time, nullable=False, server_default=store_now()),
    PrimaryKeyConstraint("job_id", "attempt", "name", name="holdfast_artifacts_pkey"),
    sqlite_with_rowid=False,
)

# `declared` is what code said, `overrides` what was changed at run time; the other columns are the two together.
schedules = Table(
    "holdfast_schedules",
    metadata,
    Column("name", Text, primary_key=True),
    Column("task", Text, nullable=False),
    Column("job", Json, nullable=False, server_default=text("'{}'")),  # payload and options of the jobs it makes
    Column("cron", Text),
    Column("every_seconds", Float),
    Column("anchor_at", Time, nullable=False, server_default=store_now()),  # intervals are counted from here
    Column("timezone", Text, nullable=False, server_default="UTC"),
    Column("misfire", Text, nullable=False, server_default="once"),
    Column("misfire_limit", Integer, nullable=False, server_default=text("1")),
    Column("misfire_grace_seconds", Float, nullable=False, server_default=text("60")),
    Column("tick_argument", Text),  # the parameter that is given the planned instant
    Column("declared", Json),  # null: made by an operator
    Column("declared_at", Time),
    Column("overrides", Json, nullable=False, server_default=text("'{}'")),
    Column("paused_at", Time),
    Column("next_at", Time),  # null: never again
    Column("last_at", Time),
    Column("revision", Integer, nullable=False, server_default=text("1")),
    Column("created_at", Time, nullable=False, server_default=store_now()),
    Column("updated_at", Time, nullable=False, server_default=store_now()),
    CheckConstraint("(cron IS NULL) <> (every_seconds IS NULL)", name="holdfast_schedules_kind"),
    CheckConstraint("every_seconds IS NULL OR every_seconds >= 1", name="holdfast_schedules_interval"),
    CheckConstraint("misfire IN ('skip', 'once', 'all') AND misfire_limit >= 1", name="holdfast_schedules_misfire"),
)

# One row a tick, inserted with its job in one transaction: the primary key is what makes it fire once.
schedule_ticks = Table(
    "holdfast_schedule_ticks",
    metadata,
    Column("schedule", Text, nullable=False),
    Column("planned_at", Time, nullable=False),
    Column("fired_at", Time, nullable=False, server_default=store_now()),
    Column("outcome", Text, nullable=False),  # fired, existing (a unique job was still active), skipped
    Column("job_id", JobId),
    Column("holder", Text),
    Column("detail", Json),
    PrimaryKeyConstraint("schedule", "planned_at", name="holdfast_schedule_ticks_pkey"),
    Index("holdfast_schedule_ticks_fired", "fired_at"),
)

# How long finished jobs, and the histories of pruned ones, are kept; a queue's own row wins over that of '*'.
retention = Table(
    "holdfast_retention",
    metadata,
    Column("what", Text, nullable=False),  # jobs or histories
    Column("queue", Text, nullable=False, server_default="*"),
    Column("state", Text, nullable=False),
    Column("keep_seconds", Float),  # null: for ever
    Column("updated_at", Time, nullable=False, server_default=store_now()),
    PrimaryKeyConstraint("what", "queue", "state", name="holdfast_retention_pkey"),
    CheckConstraint(
        f"what IN ('jobs', 'histories') AND {in_states(TERMINAL)} AND (keep_seconds IS NULL OR keep_seconds >= 0)",
        name="holdfast_retention_rule",
    ),
)

# Who may speak to a control plane. Leases are bound to the id; the secret can be changed under it.
tokens = Table(
    "holdfast_tokens",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("scopes", Json, nullable=False),
    Column("queues", Json),  # null: all of them
    Column("secret_digest", Text, nullable=False),
    Column("single_use", Boolean, nullable=False, server_default=false()),
    Column("created_at", Time, nullable=False, server_default=store_now()),
    Column("rotated_at", Time),
    Column("expires_at", Time),
    Column("revoked_at", Time),
    Column("last_used_at", Time),
)
Index(
    "holdfast_tokens_name",
    tokens.c.name,
    unique=True,
    postgresql_where=text("revoked_at IS NULL"),
    sqlite_where=text("revoked_at IS NULL"),
)

# Requests that a control plane turned away: who, why, where and from where, counted.
access_refusals = Table(
    "holdfast_access_refusals",
    metadata,
    Column("credential", Text, nullable=False, server_default=""),
    Column("reason", Text, nullable=False),
    Column("route", Text, nullable=False),
    Column("address", Text, nullable=False, server_default=""),
    Column("first_at", Time, nullable=False, server_default=store_now()),
    Column("last_at", Time, nullable=False, server_default=store_now()),
    Column("count", Integer, nullable=False, server_default=text("1")),
    PrimaryKeyConstraint("credential", "reason", "route", "address", name="holdfast_access_refusals_pkey"),
)

# Claims that can be asked for again: which leases were granted to the request of that name. Neither the request's id
# nor a lease token can be read from it.
claim_requests = Table(
    "holdfast_claim_requests",
    metadata,
    Column("credential", Text, nullable=False),
    Column("request", Text, nullable=False),
    Column("nonce", Text, nullable=False),
    Column("jobs", Json, nullable=False),
    Column("at", Time, nullable=False, server_default=store_now()),
    PrimaryKeyConstraint("credential", "request", name="holdfast_claim_requests_pkey"),
    Index("holdfast_claim_requests_at", "at"),
)

duties = Table(
    "holdfast_duties",
    metadata,
    Column("name", Text, primary_key=True),
    Column("ticked_at", Time),
    Column("holder", Text),
    # The end of the last outage that this duty noticed: nothing is reaped before one lease of its own after that.
    Column("outage_ended_at", Time),
)

meta = Table(
    "holdfast_meta",
    metadata,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
