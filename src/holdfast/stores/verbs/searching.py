"""Search for jobs, whether what is wanted is nearly all of them or three among a million.

First a short walk over all jobs in order: what is common is found there. What is rare is looked for where it must be,
state by state, each in the index that has the fewest rows to look at. Every way looks at a bounded number of rows. If
that was not enough, the page says how far it looked, and the next one goes on from there.

On Postgres all ways see one snapshot. On SQLite a job that changes its state between two of them may be missed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.domain.errors import InvalidInput
from holdfast.domain.lifecycle import TERMINAL, State
from holdfast.domain.names import check_id, check_integer, check_name, storable_text
from holdfast.domain.views import Counted, Found, JobFilter, Listed
from holdfast.stores import rows
from holdfast.stores.database import Database, Transaction
from holdfast.stores.schema.ledger import UNSUCCESSFUL
from holdfast.stores.statements import search as sql
from holdfast.stores.verbs.following import following
from holdfast.stores.verbs.listing import MOST_INLINE_BYTES, listed, names
from holdfast.stores.verbs.querying import MAX_PAGE, known_state
from holdfast.stores.verbs.settling import MAX_ERROR_TEXT

MOST_COUNTED = 100_000
FIRST_LOOK = 1_000  # rows of the first walk, and some more for every one that is wanted
LOOKS_EACH = 4
MOST_LOOKED = 20_000  # rows of every further walk
MOST_READ = 8_000  # the same where the JSON of every row has to be read
MOST_TAKEN = 10_000  # rows of a set
MOST_GROUPS = 1_000  # lanes or queues whose heads are looked at
_SPEC_HASH = re.compile("[0-9a-f]{6,64}")


@dataclass(frozen=True, slots=True)
class _Part:
    """Ids in order. Without an end they are all there are; with one, all up to there."""

    ids: list[str]
    end: str | None = None
    unseen: str | None = None  # some of what lies behind it was not looked at, and will not be


class _Search:
    def __init__(
        self, wanted: JobFilter, limit: int, after: str | None = None, newest_first: bool = True, counting: bool = False
    ) -> None:
        self._given = _given(wanted)
        self._states = _states(wanted)
        self._nothing = wanted.queues is not None and not wanted.queues
        self._limit = limit
        self._newest_first = newest_first
        self._counting = counting  # then it does not matter which they are
        self._place = {} if after is None else {"after": check_id(after, "after")}

    def ids(self, transaction: Transaction) -> _Part:
        """One more than the limit, if there are so many."""
        if not self._states or self._nothing:
            return _Part([])
        first = self._walk(transaction, "all", self._states, FIRST_LOOK + LOOKS_EACH * self._limit)
        if first.end is None or len(first.ids) > self._limit:
            return first
        return self._merged([self._best(transaction, ways, states) for states, ways in self._families()])

    def count(self, transaction: Transaction) -> Counted:
        """Up to the limit. No job is in two states, so that every family can be counted by itself."""
        if not self._states or self._nothing:
            return Counted(0)
        first = self._walk(transaction, "all", self._states, self._look())
        if first.end is None or len(first.ids) > self._limit:
            return Counted(min(len(first.ids), self._limit), len(first.ids) > self._limit)
        count, at_least = 0, False
        for states, ways in self._families():
            part = self._best(transaction, ways, states)
            count, at_least = count + len(part.ids), at_least or part.end is not None
            if count > self._limit:
                break
        count = max(count, len(first.ids))
        return Counted(min(count, self._limit), at_least or count > self._limit)

    def _families(self) -> Iterator[tuple[tuple[State, ...], list[str]]]:
        """States that are looked for together, and the ways to find them, the best first."""
        if State.PENDING in self._states:
            yield (State.PENDING,), ["lanes", "all"]
        if State.RETRYABLE in self._states:
            yield (State.RETRYABLE,), ["retryable", "lanes"]
        if State.RUNNING in self._states:
            yield (State.RUNNING,), ["running", "all"]
        if "spec_hash" in self._given:
            for ended in (self._among((State.SUCCEEDED,)), self._among(UNSUCCESSFUL)):
                if ended:
                    yield ended, ["spec", "all"]
            return
        ended = self._among(TERMINAL)
        by_name: list[str] = [name for name in ("task", "source") if name in self._given]
        if by_name and ended:
            yield ended, by_name
        else:
            for state in ended:
                yield (state,), self._ways_to(state)

    def _among(self, states: Sequence[State]) -> tuple[State, ...]:
        return tuple(state for state in states if state in self._states)

    def _ways_to(self, state: State) -> list[str]:
        if state is not State.FAILED:
            return ["ended", "each task", "all"]
        return ["ended", "failed"] if "queues" in self._given else ["failed"]

    def _best(self, transaction: Transaction, ways: Sequence[str], states: tuple[State, ...]) -> _Part:
        """The first that is sure to have found all, or enough; else the one that has looked furthest."""
        best: _Part | None = None
        for way in ways:
            found = self._try(transaction, way, states)
            if found is None:
                continue
            if found.end is None or len(found.ids) > self._limit:
                return found
            if best is None or best.end is None or self._is_before(best.end, found.end):
                best = found
        assert best is not None, "the last of the ways always leads somewhere"
        return best

    def _try(self, transaction: Transaction, way: str, states: tuple[State, ...]) -> _Part | None:
        if way in sql.WALKS:
            return self._walk(transaction, way, states, self._look())
        if way == "each task":
            return self._walk_each_task(transaction, states)
        most = max(MOST_TAKEN, self._limit + 1)
        given = {**self._given, **self._place, "limit": self._limit + 1, "most": most, "groups": MOST_GROUPS}
        found = transaction.rows(sql.whole(way, self._wanted(states)), given)
        (_, looked, groups), ids = found[0], [row[0] for row in found[1:]]
        is_cut = looked >= most or groups >= MOST_GROUPS
        if is_cut and not (self._counting and len(ids) > self._limit):
            return None
        return self._part(ids, None)

    def _walk(self, transaction: Transaction, along: str, states: tuple[State, ...], look: int) -> _Part:
        given = {**self._given, **self._place, "look": look, "limit": self._limit + 1}
        found = transaction.rows(sql.walk(along, self._wanted(states)), given)
        end = found[-1][0] if found and found[-1][1] == look else None
        return self._part([job_id for job_id, _number, wanted in found if wanted], end)

    def _walk_each_task(self, transaction: Transaction, states: tuple[State, ...]) -> _Part | None:
        """What has ended is in order task by task: however much waits, none of that is looked at. Sure is what comes
        before the first place where one of the walks ended."""
        tasks = [row[0] for row in transaction.rows(sql.ENDED_TASKS, {"groups": MOST_GROUPS})]
        if len(tasks) >= MOST_GROUPS:
            return None
        look = max(self._look() // max(1, len(tasks)), 1)
        given = {**self._given, **self._place, "tasks": json.dumps(tasks), "look": look, "limit": self._limit + 1}
        found = transaction.rows(sql.walk_each_task(self._wanted(states)), given)
        ends = [_Part([], job_id) for job_id, number, _wanted in found if number == look]
        return self._merged([_Part([job_id for job_id, _number, wanted in found if wanted]), *ends])

    def _look(self) -> int:
        return MOST_READ if "error_code" in self._given else max(MOST_LOOKED, 2 * self._limit)

    def _wanted(self, states: tuple[State, ...]) -> sql.Wanted:
        filters = tuple(name for name in self._given if name != "spec_end")
        return sql.Wanted(filters, states, self._newest_first, bool(self._place))

    def _part(self, ids: list[str], end: str | None) -> _Part:
        return _Part(ids, ids[-1]) if len(ids) > self._limit else _Part(ids, end)

    def _merged(self, parts: Sequence[_Part]) -> _Part:
        """What all of them are sure of."""
        ends = [part.end for part in parts if part.end is not None]
        end = None if not ends else max(ends) if self._newest_first else min(ends)
        ids = sorted({i for part in parts for i in part.ids}, reverse=self._newest_first)
        if "spec_hash" in self._given and len(ids) <= self._limit:
            # What has ended is known, however old: it must not wait until all that waits has been looked through.
            return _Part(ids, None, end)
        known = ids if end is None else [i for i in ids if i == end or self._is_before(i, end)]
        return self._part(known[: self._limit + 1], end)

    def _is_before(self, one: str, other: str) -> bool:
        return one > other if self._newest_first else one < other


def search(database: Database, wanted: JobFilter, limit: int, after: str | None, newest_first: bool) -> Found[Listed]:
    check_integer(limit, "limit", 1, MAX_PAGE)
    asked = _Search(wanted, limit, after, newest_first)
    with following(database) as transaction:
        part = asked.ids(transaction)
        chosen = part.ids[:limit]
        given = {"ids": json.dumps(chosen), "most": MOST_INLINE_BYTES}
        found = [listed(row, database.dialect) for row in transaction.rows(sql.THESE, given)] if chosen else []
        items = tuple(sorted(found, key=lambda item: item.job.id, reverse=newest_first))
        if len(part.ids) > limit:
            return Found(items, chosen[-1])
        looked_to = part.end or part.unseen
        return Found(items, part.end, None if looked_to is None else _created_at(transaction, looked_to))


def count_jobs(database: Database, wanted: JobFilter, most: int) -> Counted:
    check_integer(most, "most", 1, MOST_COUNTED)
    with following(database) as transaction:
        return _Search(wanted, most, counting=True).count(transaction)


def ids_of_few(database: Database, wanted: JobFilter, most: int) -> list[str] | None:
    """All of them, if they are so few; None as well where that is not certain."""
    with following(database) as transaction:
        part = _Search(wanted, most).ids(transaction)
    is_all = part.end is None and part.unseen is None
    return part.ids if is_all else None


def _created_at(transaction: Transaction, job_id: str) -> datetime | None:
    found = transaction.rows(sql.CREATED_AT, {"id": job_id})
    return rows.moment(found[0][0]) if found else None


def _states(wanted: JobFilter) -> tuple[State, ...]:
    """In one order. Whoever holds a lease holds a running job."""
    asked = {known_state(state) for state in wanted.states} or set(State)
    return tuple(state for state in State if state in asked and (wanted.worker is None or state is State.RUNNING))


def _given(wanted: JobFilter) -> dict[str, Any]:
    given: dict[str, Any] = {
        "queues": names(wanted.queues),
        **{name: _name(getattr(wanted, name), name) for name in ("task", "source", "worker")},
        "error_code": None if wanted.error_code is None else storable_text(wanted.error_code, MAX_ERROR_TEXT),
    }
    if wanted.spec_hash is not None:
        if not _SPEC_HASH.fullmatch(wanted.spec_hash):
            rule = "must be a whole one or how one begins: 6 to 64 of the characters 0-9 and a-f"
            raise InvalidInput("spec_hash", f"{rule}, got {wanted.spec_hash[:70]!r}")
        given |= {"spec_hash": wanted.spec_hash, "spec_end": f"{wanted.spec_hash}g"}  # g comes behind every hex digit
    return {name: value for name, value in given.items() if value is not None}


def _name(value: str | None, field: str) -> str | None:
    return None if value is None else check_name(value, field)
