"""Claims over HTTP, none of which is ever lost.

Every claim has an id of its own. One that got no answer is asked again under the same id, on whatever control plane
answers then: what it had claimed before is the answer, with the leases renewed. A caller waits for that as long as one
call may take; after that the id is kept, and `recover` goes on asking, so that nobody waits for those leases to end.

A claim may wait at the control plane until there is something to claim. `stop_waiting` ends that from another thread:
the connection is cut, and what may have been claimed in that very moment is asked for.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.domain.answers import Brought
from holdfast.domain.errors import InvalidInput, StoreUnavailable
from holdfast.domain.job import Claimed
from holdfast.domain.names import check_integer, check_name
from holdfast.domain.wire import claimed_from_json
from holdfast.forks import after_fork, fork_safe
from holdfast.remote.leases import Leases
from holdfast.remote.line import Line, no_control_plane
from holdfast.remote.refusals import NotDone

CLAIM = "/internal/worker/claim"
MOST_AT_ONCE = 500
MOST_EVER = 10_000  # what a store takes for a limit; no single answer brings more than MOST_AT_ONCE
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 1.0
# So long the control plane may still be at work on a claim whose answer was lost: an empty answer means little before.
UNSURE_SECONDS = 15.0
LOST_KEPT = 100


@dataclass(frozen=True, slots=True)
class _Request:
    id: str = field(repr=False)  # the tokens of its leases are derived from it
    body: dict[str, Any]
    lost_at: float = 0.0


class Claims:
    """Claims wait on a line of their own, of one connection; what is asked again goes over `line`."""

    def __init__(self, open_polls: Callable[[], Line], line: Line, seconds: float, leases: Leases) -> None:
        self._open_polls = open_polls
        self._polls: Line | None = None
        self._line = line
        self._seconds = seconds
        self._leases = leases
        self._lost: dict[str, _Request] = {}
        self._lock = fork_safe(threading.Lock())
        self._stopped = fork_safe(threading.Event())
        after_fork(self._after_fork)

    def claim(
        self,
        worker: str,
        limit: int,
        queues: Sequence[str] | None,
        tasks: Sequence[str] | None,
        request_id: str | None = None,
        wait_seconds: float = 0.0,
    ) -> Brought:
        check_integer(limit, "limit", 1, MOST_EVER)
        body: dict[str, Any] = {"worker_id": check_name(worker, "worker"), "limit": min(limit, MOST_AT_ONCE)}
        body["streams"] = None  # said: which queues are meant must not come from a name left out
        for field_name, given, sent_as in (("queues", queues, "streams"), ("tasks", tasks, "tasks")):
            if given is not None:
                body[sent_as] = _names(given, field_name)
        if [] in body.values():
            return Brought([])
        request = _Request(request_id or secrets.token_hex(16), body)
        return self._until_answered(request, 0.0 if self._stopped.is_set() else wait_seconds)

    def stop_waiting(self) -> None:
        """For good: who calls this claims no more."""
        self._stopped.set()
        if self._polls is not None:
            self._polls.hang_up()

    def close(self) -> None:
        if self._polls is not None:
            self._polls.close()

    def _after_fork(self) -> None:
        """The parent recovers its own claims."""
        self._lost = {}

    def recover(self) -> list[Claimed]:
        with self._lock:
            lost = list(self._lost.values())
        found: list[Claimed] = []
        for request in lost:
            # What it was granted is the answer, however much is asked for; if that was nothing, one job is enough.
            again = _Request(request.id, {**request.body, "limit": 1})
            jobs = self._ask(self._line, again, time.monotonic()).jobs
            found += jobs
            if jobs or time.monotonic() - request.lost_at > UNSURE_SECONDS:
                with self._lock:
                    self._lost.pop(request.id, None)
        return found

    def _until_answered(self, request: _Request, wait_seconds: float) -> Brought:
        """Only the first try waits: after that it is about what may have been claimed already."""
        began = time.monotonic()
        try:
            return self._ask(self._waiting_line() if wait_seconds else self._line, request, began, wait_seconds)
        except NotDone:
            raise
        except StoreUnavailable:
            deadline, pause = time.monotonic() + self._seconds, FIRST_PAUSE_SECONDS
        while True:
            try:
                return self._ask(self._line, request, began)
            except StoreUnavailable:
                if time.monotonic() + pause > deadline:
                    self._keep(request)
                    raise
            time.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    def _ask(self, line: Line, request: _Request, began: float, wait_seconds: float = 0.0) -> Brought:
        late = time.monotonic() - began
        body = {**request.body, "request_id": request.id, "max_wait_ms": int(wait_seconds * 1000)}
        answer = line.post(CLAIM, body, patience=wait_seconds)
        try:
            jobs = [claimed_from_json(job) for job in answer["jobs"]]
            brought = Brought(jobs, late + answer.get("waited_ms", 0) / 1000, answer.get("again_in_seconds"))
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            # Not sent by a control plane, which may have carried out the claim all the same.
            raise no_control_plane(line.place) from error
        self._leases.remember(jobs)
        return brought

    def _waiting_line(self) -> Line:
        if self._polls is None:
            self._polls = self._open_polls()
        return self._polls

    def _keep(self, request: _Request) -> None:
        with self._lock:
            self._lost[request.id] = _Request(request.id, request.body, time.monotonic())
            while len(self._lost) > LOST_KEPT:
                self._lost.pop(next(iter(self._lost)))


def _names(given: Sequence[str], field_name: str) -> list[str]:
    if isinstance(given, str):
        raise InvalidInput(field_name, "must be a list of names, not one string")
    return [check_name(name, field_name) for name in dict.fromkeys(given)]
