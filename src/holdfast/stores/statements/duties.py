"""Turns of a duty: a compare-and-set on its row in `holdfast_duties`, one winner per period by the store's clock.

A tick that lies more than a minute in the future was written by a clock that has since been set right: it counts as
none. (The reaper's tick, which also notices outages, is in `reap`.)
"""

from __future__ import annotations

from holdfast.stores.statements.words import Statement, Words


def _take(words: Words) -> str:
    period = "CAST(:period AS float8)" if words.postgres else ":period"
    return f"""
        INSERT INTO holdfast_duties AS d (name, ticked_at, holder)
        VALUES (:name, {words.now}, :holder)
        ON CONFLICT (name) DO UPDATE SET ticked_at = {words.now}, holder = :holder
        WHERE d.ticked_at IS NULL OR d.ticked_at <= {words.after(f"-{period}")}
           OR d.ticked_at > {words.after("60")}
        RETURNING name"""


def _keep(words: Words) -> str:
    return f"""
        UPDATE holdfast_duties SET ticked_at = {words.now}
        WHERE name = :name AND holder = :holder RETURNING name"""


def _turns(_words: Words) -> str:
    return "SELECT name, ticked_at, holder FROM holdfast_duties ORDER BY name"


TAKE = Statement("duties.take", _take)
KEEP = Statement("duties.keep", _keep)
TURNS = Statement("duties.turns", _turns)
