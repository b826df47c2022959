"""Enqueues that failed while only idle connections were being closed.

The time of a failure is compared with the times of strikes. A failure counts if an idle disconnect is under way or was
a moment ago, and no other fault: from `CLEAR_SECONDS` before the failure, because a call may have met an earlier one.
A call that took as long as a timeout was not ended by a closed connection, which is noticed at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.torture.checker.findings import Findings
from holdfast.torture.checker.rules import Rule
from holdfast.torture.notes import Noted, Unavailable
from holdfast.torture.results import Strike

IDLE_DISCONNECTS = "idle-disconnects"
CLEAR_SECONDS = 10.0
LATE_SECONDS = 2.0  # a closed connection is met at the next call
MAX_CALL_SECONDS = 4.0


def check_idle_disconnects(
    failures: Sequence[Noted], strikes: Sequence[Strike], struck_from: float, found: Findings
) -> None:
    """`struck_from`: the time of a note at which the times of strikes begin."""
    idle = [strike for strike in strikes if strike.kind == IDLE_DISCONNECTS]
    found.held(Rule.IDLE_DISCONNECT, len(idle))
    for noted in failures:
        note, at = noted.note, noted.at - struck_from
        assert isinstance(note, Unavailable)
        cause = next((strike for strike in idle if strike.at <= at <= strike.until + LATE_SECONDS), None)
        if cause is None or note.seconds > MAX_CALL_SECONDS or _is_disturbed(at, strikes):
            continue
        fault = f"an enqueue over {note.door} raised {note.error!r} during {cause.kind} of {cause.target}"
        found.add(Rule.IDLE_DISCONNECT, fault, *list(note.job_ids)[:1])


def _is_disturbed(at: float, strikes: Sequence[Strike]) -> bool:
    return any(
        strike.kind != IDLE_DISCONNECTS
        and strike.at <= at
        and at - CLEAR_SECONDS <= strike.until + (strike.recovered_seconds or 0.0)
        for strike in strikes
    )
