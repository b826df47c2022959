"""The verify button: the whole audit log is checked beside the page, in a thread of its own, one check at a time.

It reads through connections of its own, page by page and with no long transaction, and holds up nobody.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime

from fastapi import Request

from holdfast.domain.errors import HoldfastError
from holdfast.maintenance.verify import Progress, Stopped, Verdict, verify
from holdfast.serve.auth import Identity
from holdfast.serve.plane import Plane
from holdfast.wiring.sql import histories, references

MOST_LISTED = 50
TIMEOUT_SECONDS = 60.0
FRESH_SECONDS = 10.0


@dataclass
class Check:
    """Asked for by somebody, for everybody who looks."""

    identity: Identity
    began_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    ended_at: datetime | None = None
    progress: Progress = field(default_factory=lambda: Progress(0, 0))
    verdict: Verdict | None = None
    problem: str = ""
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def is_over(self) -> bool:
        return self.ended_at is not None

    @property
    def is_stale(self) -> bool:
        """It reads the whole log, and is not asked for again and again."""
        if self.ended_at is None:
            return False
        return bool(self.problem) or (datetime.now(UTC) - self.ended_at).total_seconds() > FRESH_SECONDS


class Checks:
    """Of one server: the last one, or the one under way."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._task: asyncio.Task[None] | None = None
        self.last: Check | None = None

    def begin(self, identity: Identity) -> Check:
        """The one under way or just done, or a new one."""
        if self.last is None or self.last.is_stale:
            self.last = Check(identity)
            self._task = asyncio.create_task(self._run(self.last))
        return self.last

    async def _run(self, check: Check) -> None:
        stopping = asyncio.create_task(self._stop_with_the_server(check))
        try:
            check.verdict = await asyncio.to_thread(self._verify, check)
        except Stopped as stopped:
            check.problem = f"{stopped}: there is no verdict"
        except HoldfastError:
            check.problem = "the store does not answer"
        except Exception as error:  # the page must hear of it, too
            check.problem = type(error).__name__
            raise
        finally:
            stopping.cancel()
            check.ended_at = datetime.now(UTC)

    async def _stop_with_the_server(self, check: Check) -> None:
        await self._plane.stopping.wait()
        check.stop.set()

    def _verify(self, check: Check) -> Verdict:
        def told(progress: Progress) -> None:
            check.progress = progress

        store = self._plane.stores.open_plain(2, TIMEOUT_SECONDS)
        try:
            found = histories(store)
            return verify(
                found,
                told,
                max_violations=MOST_LISTED,
                references=references(store),
                total=found.count(),
                stop=check.stop.is_set,
            )
        finally:
            store.close()


def checks_of(request: Request, plane: Plane) -> Checks:
    """Those of the whole server."""
    state = request.app.state
    if not hasattr(state, "checks"):
        state.checks = Checks(plane)
    found: Checks = state.checks
    return found
