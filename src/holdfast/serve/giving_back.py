"""Jobs that were claimed and reached nobody are given back at once, without charge, instead of when their leases end.

Either the client had gone when its claim was answered, or the answer was lost between the store and us: then the claim
may have been committed all the same, and the store is asked for a while which leases those are.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from contextlib import suppress

from holdfast.domain.answers import Status
from holdfast.domain.job import Claimed
from holdfast.domain.outcome import Outcome, Released, Report
from holdfast.serve.budget import Budget
from holdfast.serve.waiters import Wanted

TRIES = 5
PAUSE_SECONDS = 0.5
CLOSE_SECONDS = 1.0
LOST_SECONDS = 120.0  # a server that has lost its client may take a while to notice, and commit
GONE = Released("the worker was gone when its claim was answered")
LOST = Released("the answer to the claim was lost")


class GivingBack:
    def __init__(self, claims: Budget, control: Budget, look_every: float) -> None:
        self._claims = claims
        self._control = control
        self._look_every = look_every
        self._lost: dict[tuple[str, str], float] = {}  # worker and credential, and until when to look
        self._looking: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def client_gone(self, wanted: Wanted, jobs: Sequence[Claimed]) -> None:
        self.end(wanted, jobs, GONE)

    def end(self, wanted: Wanted, jobs: Sequence[Claimed], outcome: Outcome) -> None:
        self._begin(self._settle(wanted.worker, wanted.credential, jobs, outcome))

    def answer_lost(self, wanted: Wanted) -> None:
        self._lost[wanted.worker, wanted.credential] = time.monotonic() + LOST_SECONDS
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._keep_looking())

    async def close(self) -> None:
        """What was claimed for clients that have gone is still given back, unless the store keeps us waiting."""
        if self._looking is not None:
            self._looking.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS)
        for task in self._tasks:
            task.cancel()

    async def _keep_looking(self) -> None:
        while self._lost:
            await asyncio.sleep(self._look_every)
            for (worker, credential), until in list(self._lost.items()):
                await self._look(worker, credential)
                if time.monotonic() > until:
                    del self._lost[worker, credential]

    async def _look(self, worker: str, credential: str) -> None:
        with suppress(Exception):  # of whatever kind: the next look tries again, and the reaper has what is left
            jobs = await self._claims.call(lambda store: store.recover(worker, credential=credential))
            await self._settle(worker, credential, jobs, LOST)

    async def _settle(self, worker: str, credential: str, jobs: Sequence[Claimed], outcome: Outcome) -> None:
        reports = [
            Report(
                job.job_id,
                job.attempt,
                job.lease_token,
                outcome,
                worker,
                credential=credential,
                message_id=job.message_id,
            )
            for job in jobs
        ]
        for _try in range(TRIES):
            if reports:
                reports = await self._not_taken(reports)
            if not reports:
                return
            await asyncio.sleep(PAUSE_SECONDS)
        # Nobody beats for what is left: its lease ends, and the reaper has it.

    async def _not_taken(self, reports: list[Report]) -> list[Report]:
        try:
            answers = await self._control.call(lambda store: store.settle(reports))
        except Exception:  # tried again; what is left over is the reaper's
            return reports
        return [report for report, answer in zip(reports, answers, strict=True) if answer.status is Status.BUSY]

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
