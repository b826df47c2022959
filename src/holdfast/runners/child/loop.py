"""Coroutines on one event loop in the main thread, up to `slots` of them at once.

Frames are read by a thread and handed over, so that a job that blocks the loop blocks only its neighbours here.
"""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from time import monotonic
from typing import TYPE_CHECKING

from holdfast.runners.child.execution import Done, stopped_before_start
from holdfast.runners.child.link import ending_process
from holdfast.runners.frames import started

if TYPE_CHECKING:
    from holdfast.runners.child.service import Service
    from holdfast.runners.child.work import Work
    from holdfast.runners.frames import Frame


class LoopServer:
    def __init__(self, service: Service, slots: int) -> None:
        self._service = service
        self._slots = slots
        self._loop = asyncio.new_event_loop()
        self._loop.time = monotonic  # type: ignore[method-assign]  # a job may replace the one in `time`
        self._running: set[asyncio.Task[None]] = set()
        self._is_finished = False

    def handle(self, frame: Frame) -> None:
        # In this thread: the coroutine that waits for the answer may block the loop, and a ping tests this thread only.
        if frame["t"] in ("answer", "ping"):
            self._service.handle(frame)
        else:
            self._loop.call_soon_threadsafe(self._handle_here, frame)

    def serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        with ending_process():  # a loop that user code has broken fails again each time
            while not self._is_finished:
                try:
                    self._loop.run_forever()
                except (SystemExit, KeyboardInterrupt):  # asyncio lets them through from a user's own sub-task
                    with contextlib.suppress(Exception):  # stderr may be closed
                        traceback.print_exc()

    def _handle_here(self, frame: Frame) -> None:
        with ending_process():  # asyncio would only log it
            self._service.handle(frame)
            self._fill_slots()

    def _fill_slots(self) -> None:
        while len(self._running) < self._slots and (work := self._service.inbox.take_now()) is not None:
            self._start(work, b"")
        if self._service.inbox.is_closed and not self._running:
            self._is_finished = True
            self._loop.stop()

    def _start(self, work: Work, said: bytes) -> None:
        self._service.link.send(said + started(work.id))
        task = self._loop.create_task(self._run(work), name=work.id)
        self._running.add(task)
        # Before its first step a task must not be cancelled: it would end without having run a line, ours included.
        work.wake = lambda: task.cancel() if work.is_entered else None

    async def _run(self, work: Work) -> None:
        with ending_process():  # asyncio would only log it, and the job would stay started for ever
            work.is_entered = True
            if work.context.cancelled:
                done = Done(stopped_before_start(work))
            else:
                done = await self._service.executor.arun(work)
            self._service.leave_if_forked()
            if (task := asyncio.current_task()) is not None:
                self._running.discard(task)
            self._service.inbox.finished(work)
            if done.is_fatal:
                self._service.give_up(done.frames)
            self._after(done)

    def _after(self, done: Done) -> None:
        if (following := self._service.inbox.take_now()) is not None:
            self._start(following, done.frames)
        else:
            self._service.link.send(done.frames)
            self._fill_slots()
