"""Lists for people and programs far away: of some queues only, without what is large, at a cost that has a bound."""

from __future__ import annotations

from functools import cache

from holdfast.domain.lifecycle import CLAIMABLE, TERMINAL, State
from holdfast.stores.schema import in_states
from holdfast.stores.statements.queries import JOB_COLUMNS
from holdfast.stores.statements.words import Statement, Words

# What user code fills: one page of them could be as large as memory.
LARGE = ("payload", "progress", "result", "last_error")
_IDS = ("id", "replay_of")


def _fits(words: Words, name: str) -> str:
    text = f"CAST(j.{name} AS text)" if words.postgres else f"CAST(j.{name} AS blob)"
    size = "octet_length" if words.postgres else "length"
    return f"coalesce({size}({text}), 0) <= :most"


def _column(words: Words, name: str) -> str:
    if name in _IDS:
        return words.as_text(f"j.{name}")
    return f"CASE WHEN {_fits(words, name)} THEN j.{name} END" if name in LARGE else f"j.{name}"


def listed_columns(words: Words) -> str:
    """Behind the columns of a job stands, for each of `LARGE`, whether it is there."""
    columns = ", ".join(_column(words, name) for name in JOB_COLUMNS)
    return f"{columns}, {', '.join(_fits(words, name) for name in LARGE)}"


def _running(words: Words) -> str:
    """The longest first. Running jobs are as many as the fleet has slots, and have an index of their own."""
    rows = "FROM holdfast_jobs j WHERE j.state = 'running' ORDER BY j.claimed_at, j.id LIMIT :limit"
    return f"SELECT {listed_columns(words)} {rows}"


def _queue_of(words: Words) -> str:
    return f"SELECT j.queue FROM holdfast_jobs j WHERE j.id = {words.id('id')}"


def _queues_of(words: Words) -> str:
    return f"SELECT {words.as_text('j.id')}, j.queue FROM holdfast_jobs j WHERE j.id {words.is_one_of()}"


def _queue_settings(_words: Words) -> str:
    return "SELECT q.name, q.paused_at, q.max_running FROM holdfast_queues q WHERE q.name = :name"


def _refusals(words: Words) -> str:
    """Of jobs that are still there: what is gone has no queue any more."""
    return f"""
        SELECT {words.as_text("f.job_id")}, f.attempt, f.verb, f.reason, f.worker, f.first_at, f.last_at, f.count
        FROM holdfast_refusals f JOIN holdfast_jobs j ON j.id = f.job_id AND j.queue IN {words.among("queues")}
        ORDER BY f.last_at DESC, f.job_id, f.attempt, f.verb LIMIT 1000"""


@cache
def counts(states: tuple[State, ...], limited: bool) -> Statement:
    """Queue, state and how many. `states` are those of one index; its queues are found by a loose scan, so that ten
    million finished jobs cost a few probes and what is counted. At most so many rows of a queue are looked at: of each
    state where the index has it, else of all of them together."""
    within = in_states(states, "j.state")
    each = " UNION ALL ".join(f"SELECT '{state}' AS state" for state in states)

    def build(words: Words) -> str:
        ours = f"AND queues.queue IN {words.among('queues')}" if limited else ""
        in_index = "AND j.state = states.state" if states == TERMINAL else ""
        first = f"SELECT j.queue FROM holdfast_jobs j WHERE {within}"
        return f"""
            WITH RECURSIVE queues (queue) AS (
              SELECT ({first} ORDER BY j.queue LIMIT 1)
              UNION ALL
              SELECT ({first} AND j.queue > queues.queue ORDER BY j.queue LIMIT 1)
              FROM queues WHERE queues.queue IS NOT NULL)
            SELECT queues.queue, states.state, (
              SELECT count(*) FROM (
                SELECT j.state FROM holdfast_jobs j
                WHERE {within} AND j.queue = queues.queue {in_index} LIMIT :most) counted
              WHERE counted.state = states.state)
            FROM queues CROSS JOIN ({each}) states WHERE queues.queue IS NOT NULL {ours}"""

    name = "limited" if limited else "all"
    return Statement(f"listing.counts.{'.'.join(states)}.{name}", build, replan=True)


INDEXED: tuple[tuple[State, ...], ...] = (CLAIMABLE, (State.RUNNING,), TERMINAL)
RUNNING = Statement("listing.running", _running, replan=True)
QUEUE_OF = Statement("listing.queue_of", _queue_of)
QUEUES_OF = Statement("listing.queues_of", _queues_of)
QUEUE_SETTINGS = Statement("listing.queue_settings", _queue_settings)
REFUSALS = Statement("listing.refusals", _refusals)
