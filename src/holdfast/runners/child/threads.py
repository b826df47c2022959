"""Jobs one after another in each slot: one slot is the main thread, more slots are threads."""

from __future__ import annotations

from threading import Thread  # before the app is imported, which may replace it
from typing import TYPE_CHECKING

from holdfast.runners.child.link import ending_process
from holdfast.runners.frames import started

if TYPE_CHECKING:
    from holdfast.runners.child.service import Service
    from holdfast.runners.frames import Frame


class ThreadServer:
    def __init__(self, service: Service, slots: int) -> None:
        self._service = service
        self._slots = slots

    def handle(self, frame: Frame) -> None:
        self._service.handle(frame)

    def serve(self) -> None:
        if self._slots == 1:
            self._serve_slot_or_end()  # the main thread: libraries with signal handlers or thread affinity work here
            return
        threads = [
            # Persistent, because a command's parent-death signal is tied to the thread that started it.
            Thread(target=self._serve_slot_or_end, name=f"holdfast-slot-{number}", daemon=True)
            for number in range(1, self._slots + 1)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _serve_slot_or_end(self) -> None:
        """A slot that is gone would leave its job started for ever."""
        with ending_process():
            self._serve_slot()

    def _serve_slot(self) -> None:
        service, inbox, link = self._service, self._service.inbox, self._service.link
        said = b""
        while True:
            # `done` and the next `started` leave in one write: half the system calls, and a crash in between two jobs
            # is never charged to the one that had finished.
            work = inbox.take_now()
            if work is None:
                if said:
                    link.send(said)
                    said = b""
                work = inbox.take()
                if work is None:
                    return
            link.send(said + started(work.id))
            done = service.executor.run(work)
            service.leave_if_forked()
            inbox.finished(work)
            if done.is_fatal:
                service.give_up(done.frames)
            said = done.frames
