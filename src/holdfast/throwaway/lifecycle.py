"""What every throwaway server shares: a work directory, a process, and a sure end."""

from __future__ import annotations

import atexit
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from holdfast.throwaway.account import server_account
from holdfast.throwaway.process import ServerProcess
from holdfast.throwaway.workdir import Workdir


class ThrowawayServer(ABC):
    """A server whose data lives until `close`, and no longer than this process."""

    death_signal: ClassVar[signal.Signals]

    def __init__(self) -> None:
        self._account = server_account()
        self._workdir = Workdir(self._account)
        self._process: ServerProcess | None = None
        self._owner_pid = os.getpid()
        atexit.register(self.close)

    @property
    def workdir(self) -> Path:
        return self._workdir.path

    @property
    def log(self) -> Path:
        return self.workdir / "server.log"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.is_running

    def start(self) -> Self:
        """Start the server on its port and data, and return once it answers."""
        if self._process is not None:
            raise RuntimeError("the server is running already")
        self._prepare()
        process = ServerProcess(
            self._command(),
            cwd=self.workdir,
            log=self.log,
            account=self._account,
            death_signal=self.death_signal,
        )
        process.wait_ready(self._answers)
        self._process = process
        return self

    def close(self) -> None:
        """Stop the server and remove all it stored. Safe to call twice."""
        if os.getpid() != self._owner_pid:
            return  # a forked child runs our exit hook too, but the server is not its own
        atexit.unregister(self.close)
        self._end(self.death_signal)  # the data goes as well: no need for an orderly end
        self._workdir.remove()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _end(self, stop_signal: signal.Signals) -> None:
        if self._process is not None:
            self._process.stop(stop_signal)
            self._process = None

    @abstractmethod
    def _prepare(self) -> None:
        """Make the files the server needs, if they are not there yet."""

    @abstractmethod
    def _command(self) -> Sequence[str | Path]: ...

    @abstractmethod
    def _answers(self) -> bool:
        """Whether the server answers a client now."""
