"""What it takes to say why jobs do not move, at a cost that does not grow with how many wait.

Waiting jobs are looked at lane by lane (queue, priority, task, source), as a claim does: each step is a probe of the
ready index, and a million jobs of one lane cost no more than one. They are counted up to a limit. Running jobs are as
many as the fleet has slots. What a task usually takes is read from the young end of the index of finished jobs.
"""

from __future__ import annotations

from holdfast.domain.lifecycle import CLAIMABLE, TERMINAL
from holdfast.domain.stuck import LEASE_OVER, RUNS_LONG_AT_LEAST
from holdfast.stores.schema import in_states
from holdfast.stores.statements.words import Statement, Words

_READY = in_states(CLAIMABLE, "j.state")
_LANE = "coalesce(j.source, '')"


def _now(words: Words) -> str:
    return f"SELECT {words.now}"


def _next_lane(_words: Words) -> str:
    """The lane after (queue, priority, task, source) in the order of the ready index, with the due time of its head."""
    steps = (
        ("j.queue = :queue AND j.priority = :priority AND j.task = :task AND " + _LANE + " > :source", f"{_LANE}"),
        ("j.queue = :queue AND j.priority = :priority AND j.task > :task", f"j.task, {_LANE}"),
        ("j.queue = :queue AND j.priority < :priority", f"j.priority DESC, j.task, {_LANE}"),
        ("j.queue > :queue", f"j.queue, j.priority DESC, j.task, {_LANE}"),
    )
    probes = " UNION ALL ".join(
        f"""
        SELECT * FROM (
          SELECT {step} AS step, j.queue, j.priority, j.task, {_LANE} AS source, j.run_after FROM holdfast_jobs j
          WHERE {_READY} AND {where} ORDER BY {order}, j.run_after, j.id LIMIT 1) probe_{step}"""
        for step, (where, order) in enumerate(steps)
    )
    return f"SELECT queue, priority, task, source, run_after FROM ({probes}) probes ORDER BY step LIMIT 1"


_IN_LANE = f"{_READY} AND j.queue = :queue AND j.priority = :priority AND j.task = :task AND {_LANE} = :source"


def _before(words: Words) -> str:
    return words.moment("before")


def _lane_heads(words: Words) -> str:
    return f"""
        SELECT {words.as_text("j.id")}, j.run_after, j.attempt, j.updated_at FROM holdfast_jobs j
        WHERE {_IN_LANE} AND j.run_after < {_before(words)} ORDER BY j.run_after, j.id LIMIT :limit"""


def _lane_count(words: Words) -> str:
    return f"""
        SELECT count(*) FROM (
          SELECT 1 FROM holdfast_jobs j WHERE {_IN_LANE} AND j.run_after < {_before(words)} LIMIT :limit) counted"""


def _running(words: Words) -> str:
    """What has run for a while, or should not run any more."""
    return f"""
        SELECT {words.as_text("j.id")}, j.queue, j.task, {_LANE}, j.claimed_at, j.lease_expires_at, j.lease_seconds,
               j.lease_owner, j.cancel_requested_at, j.timeout_seconds
        FROM holdfast_jobs j
        WHERE j.state = 'running'
          AND (j.claimed_at < {words.after(str(-RUNS_LONG_AT_LEAST), words.fixed_now)}
               OR j.lease_expires_at < {words.after(str(-LEASE_OVER), words.fixed_now)})
        ORDER BY j.queue, j.id LIMIT :limit"""


def _recent_runs(_words: Words) -> str:
    """Successful runs of one queue, the latest first, whatever their task: the bound is on the rows looked at."""
    return f"""
        SELECT j.task, j.claimed_at, j.finished_at FROM holdfast_jobs j
        WHERE j.queue = :queue AND j.state = 'succeeded' AND {in_states(TERMINAL, "j.state")}
        ORDER BY j.finished_at DESC LIMIT :limit"""


NOW = Statement("stuck.now", _now)
NEXT_LANE = Statement("stuck.next_lane", _next_lane, replan=True)
LANE_HEADS = Statement("stuck.lane_heads", _lane_heads, replan=True)
LANE_COUNT = Statement("stuck.lane_count", _lane_count, replan=True)
RUNNING = Statement("stuck.running", _running, replan=True)
RECENT_RUNS = Statement("stuck.recent_runs", _recent_runs, replan=True)
REAPER = Statement(
    "stuck.reaper",
    lambda _words: "SELECT ticked_at, holder, outage_ended_at FROM holdfast_duties WHERE name = 'reaper'",
)
QUEUES = Statement("stuck.queues", lambda _words: "SELECT name, paused_at, max_running FROM holdfast_queues")
SOURCES = Statement(
    "stuck.sources",
    lambda _words: (
        "SELECT name, enabled, paused_until, max_concurrent, rate_limit_per_minute, burst, bucket_level, bucket_at,"
        " failure_streak >= breaker_threshold, paused_by FROM holdfast_sources"
    ),
)
TASKS = Statement("stuck.tasks", lambda _words: "SELECT name, announced_at FROM holdfast_tasks")
