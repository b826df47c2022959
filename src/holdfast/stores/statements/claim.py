"""Claim a batch.

With no limits in play that is one call on Postgres (`routines/claim.py`); with limits in play, and on SQLite, a claim
looks first (`statements/look.py`) and then claims rows by their ids.

The token's digest is computed in the statement from one secret per claim, which is how Python knows every row's token
afterwards without having been told.
"""

from __future__ import annotations

from holdfast.domain.lifecycle import CLAIMABLE, State
from holdfast.stores.schema import still_in
from holdfast.stores.statements import admission
from holdfast.stores.statements.words import Statement, Words

RETURNED = (
    "task",
    "task_version",
    "queue",
    "source",
    "payload",
    "attempt",
    "failures",
    "crashes",
    "max_attempts",
    "max_crashes",
    "timeout_seconds",
    "lease_seconds",
    "traceparent",
)


def _due_seconds(words: Words, prefix: str) -> str:
    """How long a claimed job had been due. Computed here: a number costs a client less than one more time."""
    claimed_at, run_after = f"{prefix}claimed_at", f"{prefix}run_after"
    if words.postgres:
        return f"CAST(extract(epoch FROM {claimed_at} - {run_after}) AS float8) AS due_seconds"
    return f"(julianday({claimed_at}) - julianday({run_after})) * 86400.0 AS due_seconds"


def returned(words: Words) -> str:
    """As `rows.claimed` reads it, of the updated row; SQLite's RETURNING knows no alias."""
    return _columns(words, "j." if words.postgres else "")


def _columns(words: Words, prefix: str) -> str:
    """The payload as text: it is handed on as it is, and read by whoever runs the job."""
    named = [words.as_text(f"{prefix}{name}") if name == "payload" else f"{prefix}{name}" for name in RETURNED]
    return ", ".join([words.as_text(f"{prefix}id"), *named, _due_seconds(words, prefix)])


def take(words: Words, digest: str, worker: str = ":worker") -> str:
    """The SET clause of a claim."""
    return f"""
        SET state = 'running', transition = 'claimed', transition_detail = NULL, seq = j.seq + 1,
            attempt = j.attempt + 1, lease_owner = {worker}, lease_token = {digest},
            lease_expires_at = {words.after("j.lease_seconds")}, claimed_at = {words.now}, heartbeat_at = NULL,
            started_at = coalesce(j.started_at, {words.now}), updated_at = {words.transition_time}"""


# The digest of `digests.lease_token(secret, id)`, as `digests.token_digest` makes it.
DIGEST = (
    "left(encode(sha256(convert_to("
    "encode(sha256(CAST(:secret AS bytea) || uuid_send(j.id)), 'hex') || CAST(:binding AS text), 'UTF8')), 'hex'), 32)"
)

CLAIM = Statement(
    "claim",
    lambda _words: (
        "SELECT * FROM holdfast_claim(:worker, :secret, :binding, :limit, :slack,"
        " CAST(:queues AS text[]), CAST(:tasks AS text[]))"
    ),
)


# An UPDATE returns its rows in no order at all; these follow what `rows.claimed` reads.
_ORDER = "{prefix}priority, {prefix}run_after"


def _locked(parameter: str) -> str:
    return f"(SELECT value FROM json_array_elements_text(CAST(:{parameter} AS json)))"


def _claim_rows(words: Words) -> str:
    """Claim exactly these jobs, if they are claimable and due: for claims that looked first, or were told ids.

    What the claim has not locked had no limit when it looked. If somebody has set one since, or closed it, its jobs are
    left alone: the next look sees it. On SQLite nobody else writes in between.

    On Postgres it also takes out of the token buckets what it claimed; SQLite cannot, and has `SPEND`."""
    ready = f"{still_in(*CLAIMABLE)} AND j.run_after <= {words.fixed_now}"
    shut = "SELECT q.name FROM holdfast_queues q WHERE q.paused_at IS NOT NULL"
    if words.postgres:
        ready += f"""
            AND j.queue NOT IN ({shut} OR q.max_running IS NOT NULL AND q.name NOT IN {_locked("queues")})
            AND (j.source IS NULL OR j.source IN {_locked("sources")} OR NOT EXISTS (
              SELECT 1 FROM holdfast_sources s WHERE s.name = j.source
                AND ({admission.LIMITED} OR NOT ({admission.is_open(words)}))))"""
        return f"""
        WITH claimed AS (
          UPDATE holdfast_jobs AS j {take(words, DIGEST)}
          WHERE j.ctid = ANY (ARRAY(
            SELECT j.ctid FROM holdfast_jobs j WHERE j.id {words.is_one_of()} AND {ready} {words.skip_locked}))
          RETURNING {returned(words)}, {_ORDER.format(prefix="j.")}),
        taken AS (SELECT source AS name, count(*) AS taken FROM claimed GROUP BY source),
        spent AS ({admission.spend(words, "taken r")} AND s.name = ANY (ARRAY{_locked("sources")}))
        SELECT * FROM claimed"""
    rows = words.rows({"id": "uuid", "digest": "text"})
    return f"""
        WITH chosen AS MATERIALIZED (
          SELECT j.rowid AS place, r.digest FROM holdfast_jobs j JOIN {rows} ON j.id = r.id
          WHERE {ready} AND j.queue NOT IN ({shut}))
        UPDATE holdfast_jobs AS j {take(words, "chosen.digest")}
        FROM chosen WHERE j.rowid = chosen.place
        RETURNING {returned(words)}, {_ORDER.format(prefix="")}"""


CLAIM_ROWS = Statement("claim.rows", _claim_rows)


def _held(words: Words) -> str:
    return f"SELECT {_columns(words, 'j.')}, j.lease_token FROM holdfast_jobs j"


HELD = Statement(
    "claim.held", lambda words: f"{_held(words)} WHERE j.state = 'running' AND j.lease_owner = :worker", replan=True
)
HELD_JOBS = Statement(
    "claim.held_jobs", lambda words: f"{_held(words)} WHERE j.id {words.is_one_of()} AND {still_in(State.RUNNING)}"
)
