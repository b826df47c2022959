"""Limits of sources and queues, applied before the lease.

A governed claim is one transaction: look, without any lock, which jobs it would take, passing over what is plainly
closed (`statements/look.py`); lock the sources and queues of just these (in name order, skipping those that another
claim has); then count what runs and claim, on fresh snapshots. Counting and claiming without the lock, in one READ
COMMITTED statement, breaks a limit of 1 almost every second time; and to lock every source that has work waiting would
leave nothing to a second claim.
"""

from __future__ import annotations

from holdfast.domain.lifecycle import State
from holdfast.stores.schema import still_in
from holdfast.stores.statements.words import Statement, Words

# For a bound that there is not: more than anybody claims at once.
NO_BOUND = 1_000_000_000


def seconds_between(words: Words, earlier: str, later: str) -> str:
    if words.postgres:
        return f"CAST(extract(epoch FROM {later} - {earlier}) AS float8)"
    # To the microsecond, which SQLite's own date arithmetic is not: whole seconds and fractions by themselves. (To it
    # the last half millisecond of a second is the next one.)
    whole = f"strftime('%s', substr({later}, 1, 19)) - strftime('%s', substr({earlier}, 1, 19))"
    return f"({whole} + (substr({later}, 21, 6) - substr({earlier}, 21, 6)) / 1000000.0)"


def level(words: Words, now: str) -> str:
    """Tokens in the bucket of source `s` at that moment, as `SourceStanding.level` has it; null without a rate."""
    least, greatest = ("least", "greatest") if words.postgres else ("min", "max")
    elapsed = f"{greatest}({seconds_between(words, 's.bucket_at', now)}, 0)"
    full = f"{least}(s.burst, s.bucket_level + {elapsed} * s.rate_limit_per_minute / 60.0)"
    return f"CASE WHEN s.rate_limit_per_minute IS NOT NULL THEN {full} END"


HALF_OPEN = "s.failure_streak >= s.breaker_threshold"
LIMITED = f"(s.rate_limit_per_minute IS NOT NULL OR s.max_concurrent IS NOT NULL OR {HALF_OPEN})"


def is_open(words: Words) -> str:
    return f"s.enabled AND (s.paused_until IS NULL OR s.paused_until <= {words.fixed_now})"


def in_use(source: str, job: str = "true", hold: str = "NOT h.own") -> str:
    """Jobs that run under a source, and those that entered it while they run; whose own it is counts as a job. Never a
    counter. `job` and `hold`: only such jobs `r` and holds `h`."""
    return f"""(
          (SELECT count(*) FROM holdfast_jobs r
           WHERE r.state = 'running' AND r.source IS NOT NULL AND r.source = {source} AND {job})
          + (SELECT count(*) FROM holdfast_source_holds h JOIN holdfast_jobs r ON r.id = h.job_id
             WHERE h.source = {source} AND h.left_at IS NULL
               AND {still_in(State.RUNNING, row="r")} AND r.attempt = h.attempt AND {hold}))"""


def probes(whose: str = "true") -> str:
    """Above 0 when something in use of source `s` was let in since its pause was over, be it by a claim or through a
    block; `whose`: of these jobs `r` alone. A straggler from before that is no probe: it tells nothing of how the
    source is now, and may hang for good."""
    since = "(s.paused_until IS NULL OR {} >= s.paused_until) AND {}"
    return in_use("s.name", since.format("r.claimed_at", whose), since.format("h.at", whose))


def probing(whose: str = "true") -> str:
    """The same where it matters: the source is half open."""
    return f"CASE WHEN {HALF_OPEN} THEN {probes(whose)} ELSE 0 END"


def counted(whose: str = "true") -> str:
    """How much of source `s` is in use where that is limited, and its probes."""
    return f"CASE WHEN s.max_concurrent IS NOT NULL THEN {in_use('s.name')} ELSE 0 END, {probing(whose)}"


STANDING = "s.name, s.max_concurrent, s.rate_limit_per_minute, s.burst, s.bucket_level"


def standing(words: Words) -> str:
    """The columns of a `SourceStanding`."""
    return f"{STANDING}, {seconds_between(words, 's.bucket_at', words.fixed_now)}, {HALF_OPEN}"


def _names(words: Words) -> str:
    rows = words.texts("names")
    return f"SELECT value FROM {rows}"


def _named(words: Words) -> str:
    return f"= ANY (ARRAY({_names(words)}))" if words.postgres else f"IN ({_names(words)})"


def counted_standing(words: Words) -> str:
    """The columns of a `SourceStanding`, and those of `RUNNING_BY_SOURCE` as far as they matter."""
    return f"{standing(words)}, {counted()}"


def _lock_sources(words: Words) -> str:
    """What has a row and is open, and was not locked by somebody else. They are counted after they were locked: on
    Postgres by a statement of its own, inside a function (`guards/postgres_admission.py`)."""
    if words.postgres:
        return "SELECT * FROM holdfast_lock_sources(CAST(:names AS json))"
    return f"""
        SELECT {counted_standing(words)} FROM holdfast_sources s
        WHERE s.name {_named(words)} AND {is_open(words)}"""


def _lock_queues(words: Words) -> str:
    lock = "FOR NO KEY UPDATE OF q SKIP LOCKED" if words.postgres else ""
    return f"""
        SELECT q.name, q.max_running FROM holdfast_queues q
        WHERE q.name {_named(words)} AND q.max_running > 0 AND q.paused_at IS NULL
        ORDER BY q.name {lock}"""


def _running_by_source(words: Words) -> str:
    """In use, all told; and its probes, which matter only when it is half open."""
    return f"""
        SELECT s.name, {in_use("s.name")}, {probing()}
        FROM holdfast_sources s WHERE s.name {_named(words)}"""


def _running_by_queue(words: Words) -> str:
    return f"""
        SELECT j.queue, count(*) FROM holdfast_jobs j
        WHERE j.state = 'running' AND j.queue {_named(words)}
        GROUP BY j.queue"""


def spend(words: Words, taken: str) -> str:
    """Out of the buckets what was `taken` (r: name, taken). The clock is read after the jobs were claimed, never
    before: no stretch of time counts twice."""
    greatest = "greatest" if words.postgres else "max"
    return f"""
        UPDATE holdfast_sources AS s
        SET bucket_level = {greatest}({level(words, words.fixed_now)} - r.taken, 0), bucket_at = {words.fixed_now}
        FROM {taken} WHERE s.name = r.name AND s.rate_limit_per_minute IS NOT NULL"""


LOCK_SOURCES = Statement("admission.lock_sources", _lock_sources)
LOCK_QUEUES = Statement("admission.lock_queues", _lock_queues)
RUNNING_BY_SOURCE = Statement("admission.running_by_source", _running_by_source)
RUNNING_BY_QUEUE = Statement("admission.running_by_queue", _running_by_queue)
# SQLite only: `:taken` is an object of counts by name.
SPEND = Statement(
    "admission.spend",
    lambda words: spend(words, "(SELECT key AS name, value AS taken FROM json_each(:taken)) AS r"),
)
