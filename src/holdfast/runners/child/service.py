"""What every kind of runner does with the frames that arrive, and how it ends."""

from __future__ import annotations

from os import _exit
from typing import TYPE_CHECKING, Protocol

from holdfast.runners.child import messages
from holdfast.runners.child.asking import Asks
from holdfast.runners.child.channel import Outbox
from holdfast.runners.child.execution import Executor, flush_standard_streams, refused, stopped_before_start
from holdfast.runners.child.inbox import Inbox
from holdfast.runners.child.work import LazyFiles, Work

if TYPE_CHECKING:
    from holdfast.runners.child.link import Link
    from holdfast.runners.frames import Frame
    from holdfast.tasks.context import Context


class Server(Protocol):
    def handle(self, frame: Frame) -> None:
        """Called by the thread that reads the socket."""

    def serve(self) -> None:
        """Run by the main thread; returns when the runner was told to stop and nothing runs any more."""


class Service:
    def __init__(self, link: Link, executor: Executor) -> None:
        self.link = link
        self.executor = executor
        self.inbox = Inbox()
        self._outbox = Outbox(link)
        self._asks = Asks(link)
        self._files: LazyFiles | None = None

    def handle(self, frame: Frame) -> None:
        match frame["t"]:
            case "run":
                files = self._files_at(frame.get("artifacts"))
                self._accept([Work(job, self._outbox, self._asks, files) for job in frame["jobs"]])
            case "cancel":
                self._cancel(frame["id"], frame["reason"])
            case "lease_lost":
                if (active := self.inbox.active(frame["id"])) is not None:
                    active.lose_lease()
            case "answer":
                self._asks.answered(frame)
            case "give_back":
                self.link.send(messages.returned(self.inbox.empty()))
                if frame.get("draining"):
                    for active in self.inbox.all_active():
                        active.context.end_waiting()
            case "ping":
                self.link.send(messages.frame("pong"))
            case "stop":
                self._return(self.inbox.close())

    def _files_at(self, root: str | None) -> LazyFiles | None:
        if root is None:
            return None
        if self._files is None or self._files.root != root:
            self._files = LazyFiles(root)
        return self._files

    def _accept(self, works: list[Work]) -> None:
        known = [work for work in works if self.executor.knows(work)]
        for work in works:
            if not self.executor.knows(work):
                self.link.send(refused(work))
        if not self.inbox.put(known):
            self._return([work.id for work in known])

    def _cancel(self, lease_id: str, reason: str) -> None:
        if (queued := self.inbox.remove(lease_id)) is not None:
            queued.cancel(reason)
            self.link.send(stopped_before_start(queued))
        elif (active := self.inbox.active(lease_id)) is not None:
            active.cancel(reason)

    def _return(self, ids: list[str]) -> None:
        if ids:
            self.link.send(messages.returned(ids))

    def only_context(self) -> Context | None:
        """Whose words they are that a thread says which belongs to no job. A command's are read from its own output."""
        work = self.inbox.only_active()
        return None if work is None or self.executor.is_command(work) else work.context

    def give_up(self, last_words: bytes) -> None:
        """Out of memory: say what is known, hand back what has not started, and end."""
        self.link.send(last_words + messages.returned(self.inbox.close()))
        flush_standard_streams()
        _exit(1)

    def leave_if_forked(self) -> None:
        """User code forked and its child came back here: it must not go on as if it were the runner."""
        if not self.link.is_open:
            flush_standard_streams()
            _exit(0)
