"""What may be offered to workers in messages: due, unclaimed, and governed by no limit.

A source or a queue with a limit decides at the moment of a claim who is let in; a message that lies in a stream cannot
know. So such jobs are left to the claims that look into the database.
"""

from __future__ import annotations

from holdfast.domain.lifecycle import CLAIMABLE
from holdfast.stores.schema import in_states
from holdfast.stores.statements.lanes import GIVEN_QUEUES, due_rows, walk_levels
from holdfast.stores.statements.words import Statement, Words

_READY = in_states(CLAIMABLE, "j.state")


def _columns(words: Words, claimable: str) -> str:
    owner = "CASE WHEN j.state = 'running' THEN j.lease_owner END"
    return f"{words.as_text('j.id')}, j.queue, j.seq, j.task, {claimable}, {owner}"


def _heads(words: Words) -> str:
    """The first so many of a queue in the order of a claim, on Postgres; SQLite walks in a loop."""
    walk = walk_levels(GIVEN_QUEUES, "q.max_running IS NULL")
    ready = f"level CROSS JOIN LATERAL ({due_rows()}) ready"
    # Numbered before the join, which may bring its rows in any order.
    return f"""{walk},
        chosen AS MATERIALIZED (SELECT ready.tid, row_number() OVER () AS position FROM {ready} LIMIT :window)
        SELECT {_columns(words, "true")} FROM chosen JOIN holdfast_jobs j ON j.ctid = chosen.tid
        ORDER BY chosen.position"""


def _standing(words: Words) -> str:
    due = f"""{_READY} AND j.run_after <= {words.fixed_now}
        AND NOT EXISTS (SELECT 1 FROM holdfast_queues q WHERE q.name = j.queue AND q.paused_at IS NOT NULL)"""
    return f"SELECT {_columns(words, due)} FROM holdfast_jobs j WHERE j.id {words.is_one_of()}"


def _queues(_words: Words) -> str:
    """Those that have something to claim, now or later: one probe of the index for each."""
    further = f"SELECT j.queue FROM holdfast_jobs j WHERE {_READY} AND j.queue > seen.name ORDER BY j.queue LIMIT 1"
    return f"""
        WITH RECURSIVE seen (name) AS (
          SELECT (SELECT j.queue FROM holdfast_jobs j WHERE {_READY} ORDER BY j.queue LIMIT 1)
          UNION ALL
          SELECT ({further}) FROM seen WHERE seen.name IS NOT NULL)
        SELECT name FROM seen WHERE name IS NOT NULL"""


HEADS = Statement("offers.heads", _heads, replan=True)
STANDING = Statement("offers.standing", _standing)
QUEUES = Statement("offers.queues", _queues, replan=True)
