"""How many ran at once, and how many started in any stretch of time, by the moments in the audit log.

Claims under a limit hold its row: they follow one another, and each counts what runs on a snapshot that it takes then.
An outcome's moment is before its commit and a claim's is after its count, so a lease that was not over by the log when
another began was counted. No tolerance is needed; where two moments are the same, the end came first.

The bucket: what is taken at a claim is taken at a moment of its own, after that of the claim, and what has come in is
counted at a moment before it. So from one claim's moment to another's, both included, at most rate · T + burst are let
in. With x = number - rate · moment this is: no x is more than burst - 1 above the least one before it. One pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

from holdfast.torture.checker.expectations import Expectations, LimitedSource
from holdfast.torture.checker.findings import Findings
from holdfast.torture.checker.life import RUNNING, Life
from holdfast.torture.checker.rules import Rule
from holdfast.torture.moments import moment

# Of a token: moments are cut to the microsecond.
_HAIR = 1e-3
_MOST_SHOWN = 8


class Lease(NamedTuple):
    job_id: str
    began: str
    ended: str | None  # None: it is still held
    length: int  # of the job's history


class Limits:
    """Fed with every job, it keeps the leases of those that are limited."""

    def __init__(self, expected: Expectations) -> None:
        self._expected = expected
        self._by_source: dict[str | None, list[Lease]] = {source.name: [] for source in expected.sources}
        self._by_queue: dict[str | None, list[Lease]] = {queue: [] for queue in expected.queues}

    def feed(self, life: Life) -> None:
        if life.source in self._by_source:
            self._by_source[life.source] += leases_of(life)
        if life.queue in self._by_queue:
            self._by_queue[life.queue] += leases_of(life)

    def check(self, found: Findings) -> None:
        for source in self._expected.sources:
            leases = self._by_source[source.name]
            if source.max_concurrent is not None:
                check_concurrency(f"source {source.name}", leases, source.max_concurrent, found)
            check_rate(source, leases, found)
        for queue, most in self._expected.queues.items():
            check_concurrency(f"queue {queue}", self._by_queue[queue], most, found)


def leases_of(life: Life) -> Iterator[Lease]:
    began: str | None = None
    for event in life.events:
        if event.to_state == RUNNING and event.from_state != RUNNING:
            began = event.at
        elif event.from_state == RUNNING and event.to_state != RUNNING and began is not None:
            yield Lease(life.job_id, began, event.at, len(life.events))
            began = None
    if began is not None:
        yield Lease(life.job_id, began, None, len(life.events))


def check_concurrency(what: str, leases: Sequence[Lease], most: int, found: Findings) -> None:
    found.held(Rule.OVER_LIMIT, len(leases))
    held: dict[str, Lease] = {}
    for at, begins, lease in sorted(_moments(leases), key=itemgetter(0, 1)):
        if not begins:
            held.pop(lease.job_id, None)
            continue
        held[lease.job_id] = lease
        if len(held) > most:
            shown = [lease.job_id, *(job_id for job_id in held if job_id != lease.job_id)]
            length = sum(each.length for each in held.values())
            detail = f"{what}: {len(held)} at once at {at}, and {most} is the limit"
            found.add(Rule.OVER_LIMIT, detail, *shown[:_MOST_SHOWN], length=length)


def _moments(leases: Sequence[Lease]) -> Iterator[tuple[str, bool, Lease]]:
    """Sorted, an end comes before a beginning. A lease that took no time was in nobody's way."""
    for lease in leases:
        if lease.began != lease.ended:
            yield lease.began, True, lease
            if lease.ended is not None:
                yield lease.ended, False, lease


def check_rate(source: LimitedSource, leases: Sequence[Lease], found: Findings) -> None:
    if source.rate_limit_per_minute is None:
        return
    rate = source.rate_limit_per_minute / 60
    known = ((at, lease) for lease in leases if (at := moment(lease.began)) is not None)
    starts = sorted(known, key=itemgetter(0))
    found.held(Rule.OVER_RATE, len(starts))
    least: tuple[float, int] | None = None
    for number, (at, lease) in enumerate(starts):
        height = number - rate * (at - starts[0][0])
        if least is None or height < least[0]:
            least = height, number
        if height - least[0] > source.burst - 1 + _HAIR:
            first, count = starts[least[1]], number - least[1] + 1
            detail = (
                f"source {source.name}: {count} started within {at - first[0]:.3f} s, and"
                f" {source.rate_limit_per_minute:g} a minute with a burst of {source.burst} are the limit"
            )
            shown = dict.fromkeys([lease.job_id, *(each.job_id for _, each in starts[least[1] : number])])
            found.add(Rule.OVER_RATE, detail, *list(shown)[:_MOST_SHOWN], length=count)
