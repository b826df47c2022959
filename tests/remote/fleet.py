"""Real `holdfast serve` and `holdfast worker --control-plane` processes over one database."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import httpx

from tests.serve.grounds import new_token
from tests.servers.waiting import DEADLINE_SECONDS, wait_until
from tests.worker.site import Site, WorkerProcess


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class Plane:
    """One `holdfast serve` on a port of its own, which it has again after each restart."""

    def __init__(self, site: Site, number: int, **environment: str) -> None:
        self._site = site
        self._number = number
        self._environment = environment
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: WorkerProcess | None = None
        self.begin()

    def begin(self) -> None:
        command = [sys.executable, "-m", "holdfast", "--database", self._site.url, "serve", "--port", str(self.port)]
        log = self._site.folder / f"plane-{self._number}.log"
        environment = self._site.environment(**self._environment)
        self._process = WorkerProcess(command, self._site.folder, environment, log)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def wait_until_ready(self) -> None:
        def answers() -> bool:
            try:
                return httpx.get(f"{self.url}/readyz", timeout=DEADLINE_SECONDS).is_success
            except httpx.TransportError:
                return False

        wait_until(answers, what=f"the control plane of {self.url} is ready")

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()

    def text(self) -> str:
        assert self._process is not None
        return self._process.text()


class Fleet(Site):
    """A site whose workers know a control plane and a token, and no database."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder, url)
        self.planes: list[Plane] = []
        self.token = new_token(self.store, "worker", "client")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.workers:
            worker.kill()
        for plane in self.planes:
            plane.kill()
            if error is not None:
                print(f"--- control plane {plane.url}\n{plane.text()[-4000:]}")
        super().__exit__(kind, error, trace)

    def plane(self, **environment: str) -> Plane:
        plane = Plane(self, len(self.planes), **environment)
        self.planes.append(plane)
        plane.wait_until_ready()
        return plane

    def remote_worker(
        self, url: str, *flags: str, token: str | None = None, program: Sequence[str] = (), **environment: str
    ) -> WorkerProcess:
        return self.worker(
            "--processes",
            "1",
            *flags,
            url="",
            log_level="info",
            program=program,
            HOLDFAST_CONTROL_PLANE=url,
            HOLDFAST_TOKEN=token or self.token,
            **environment,
        )
