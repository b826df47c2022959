"""Two releases side by side: copies of the source, and real processes of each over one database."""

from __future__ import annotations

import compileall
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from tests.acceptance.command_line import CommandLine, Finished, InProcess
from tests.chaos.databases import query
from tests.migration.conftest import HEAD, NEXT, NEXT_STEP
from tests.remote.fleet import free_port
from tests.servers.waiting import DEADLINE_SECONDS, wait_until
from tests.worker.site import WorkerProcess

REPOSITORY = Path(__file__).parents[2]
SOURCE = REPOSITORY / "src"
GUARDS = {"only a finished job is deleted": "only a job that has finished is deleted"}

TASKS = """
import sys
from holdfast import App

def work():
    pass

def declared(target):
    app = App(target)
    app.task(name="work")(work)
    return app

app = declared(None)

if __name__ == "__main__":
    apps = {target: declared(target) for target in sys.argv[1:]}
    for line in sys.stdin:
        target, queue = line.split()
        try:
            print(apps[target].tasks["work"].using(queue=queue).enqueue().id, flush=True)
        except Exception as error:
            print("refused:", error, flush=True)
"""


@dataclass(frozen=True)
class Release:
    """`source` is the folder that has the package; it comes before the installed one."""

    name: str
    source: Path

    @property
    def variables(self) -> dict[str, str]:
        return {"PYTHONPATH": str(self.source)}


def this_release() -> Release:
    return Release("this", SOURCE)


def next_release(folder: Path) -> Release:
    """This one with a migration that adds a column, and with changed guards."""
    shutil.copytree(SOURCE / "holdfast", folder / "holdfast")  # with the byte code, which is valid for the copies
    stores = folder / "holdfast" / "stores"
    (stores / "migrations" / "versions" / f"{NEXT}_note.py").write_text(NEXT_STEP)
    _edit(stores / "upgrade.py", r'COMPATIBLE_FROM = "\d+"', f'COMPATIBLE_FROM = "{HEAD}"')
    _edit(stores / "guards" / "__init__.py", r"NUMBER = (\d+)", lambda found: f"NUMBER = {int(found[1]) + 1}")
    for dialect in ("postgres", "sqlite"):
        for ours, theirs in GUARDS.items():
            _edit(stores / "guards" / f"{dialect}.py", ours, theirs)
    compileall.compile_dir(str(folder), quiet=2)
    return Release("next", folder)


def released(commit: str, folder: Path) -> Release | None:
    """A commit of this repository; None where its history is not at hand."""
    archive = subprocess.run(
        ["git", "archive", commit, "src/holdfast"], cwd=REPOSITORY, capture_output=True, check=False
    )
    if archive.returncode != 0:
        return None
    folder.mkdir(exist_ok=True)
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
    compileall.compile_dir(str(folder), quiet=2)
    return Release(commit, folder / "src")


def _edit(file: Path, pattern: str, replacement: object) -> None:
    text, count = re.subn(rf"(?m){pattern}", replacement, file.read_text())  # type: ignore[call-overload]
    assert count == 1, f"{pattern} in {file}"
    file.write_text(text)


class Producer:
    """A process that enqueues a job for each line: into the database, and over HTTP if it has a control plane."""

    def __init__(self, release: Release, folder: Path, targets: list[str], environment: dict[str, str]) -> None:
        self.release = release
        self._targets = targets
        self._popen = subprocess.Popen(
            [sys.executable, "tasks.py", *targets],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def send(self, queues: list[str]) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.writelines(f"{target} {queue}\n" for target in self._targets for queue in queues)
        self._popen.stdin.flush()

    def receive(self, queues: list[str]) -> list[str]:
        """The ids of the jobs that were sent for."""
        assert self._popen.stdout is not None
        answers = [self._popen.stdout.readline().strip() for _ in self._targets for _ in queues]
        refused = {text for text in answers if re.fullmatch(r"[0-9a-f-]{36}", text) is None}
        assert not refused, f"producer of {self.release.name}: {refused}"
        return answers

    def kill(self) -> None:
        self._popen.kill()
        self._popen.communicate()


class Deployment:
    """Processes over one database; each worker has a queue of its own, so that it is known which of them ran a job."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.queues: list[str] = []
        self.producers: list[Producer] = []
        self._processes: list[WorkerProcess] = []
        self._token = ""
        (folder / "tasks.py").write_text(TASKS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for producer in self.producers:
            producer.kill()
        for process in self._processes:
            process.kill()
        for process in self._processes if error is not None else ():
            print(f"--- {process.log.name}\n{process.text()[-3000:]}")

    @property
    def is_postgres(self) -> bool:
        return self.url.startswith("postgresql")

    def command(self, release: Release, *words: str) -> Finished:
        """In this process, unless it is another release's."""
        kind = InProcess if release.source == SOURCE else CommandLine
        return kind(self.folder, self.url)(*words, **release.variables)

    def worker(self, release: Release) -> WorkerProcess:
        return self._worker(release, ["--database", self.url], "worker", {})

    def http_worker(self, release: Release, control_plane: str) -> WorkerProcess:
        remote = {"HOLDFAST_CONTROL_PLANE": control_plane, "HOLDFAST_TOKEN": self._token}
        return self._worker(release, [], "http-worker", remote)

    def _worker(self, release: Release, flags: list[str], kind: str, variables: dict[str, str]) -> WorkerProcess:
        queue = f"{release.name}-{kind}-{len(self.queues)}"
        self.queues.append(queue)
        words = ["worker", "tasks:app", "--queues", queue, "--processes", "1"]
        return self._start(release, queue, *flags, *words, POLL_INTERVAL="0.2", **variables)

    def serve(self, release: Release, port: int | None = None) -> str:
        """The URL of a control plane. HTTP clients wait until it answers."""
        port = port or free_port()
        name = f"{release.name}-serve-{port}"
        self._start(release, name, "--database", self.url, "serve", "--port", str(port))
        return f"http://127.0.0.1:{port}"

    def wait_until_ready(self, *control_planes: str) -> None:
        for url in control_planes:
            wait_until(lambda url=url: _is_ready(url), what=f"{url} is ready")  # type: ignore[misc]

    def produce(self, release: Release, *control_planes: str) -> Producer:
        environment = CommandLine(self.folder).environment(**release.variables, HOLDFAST_TOKEN=self._token)
        producer = Producer(release, self.folder, [self.url, *control_planes], environment)
        self.producers.append(producer)
        return producer

    def create_token(self, release: Release) -> None:
        words = ("tokens", "create", "fleet", "--scope", "worker", "--scope", "client", "--json")
        self._token = self.command(release, *words).succeeded().document["token"]

    def assert_all_work(self, count: int = 1) -> None:
        """Every producer enqueues jobs for every worker, and every worker runs its jobs."""
        with self.working(count):
            pass

    @contextmanager
    def working(self, count: int) -> Iterator[None]:
        queues = self.queues * count
        for producer in self.producers:
            producer.send(queues)
        yield
        self.wait_for([job_id for producer in self.producers for job_id in producer.receive(queues)])

    def wait_for(self, ids: list[str]) -> None:
        listed = ", ".join(f"'{job_id}'" for job_id in ids)
        left = f"SELECT queue, state FROM holdfast_jobs WHERE id IN ({listed}) AND state <> 'succeeded'"
        try:
            wait_until(lambda: not query(self.url, left), what="the jobs of all workers")
        except TimeoutError as error:
            raise AssertionError(f"{error}: {query(self.url, left)}") from None

    def stop(self, release: Release) -> None:
        """SIGKILL to every process of a release."""
        for producer in [one for one in self.producers if one.release == release]:
            producer.kill()
            self.producers.remove(producer)
        for process in [one for one in self._processes if one.log.name.startswith(f"{release.name}-")]:
            process.kill()
            if process.log.stem in self.queues:
                self.queues.remove(process.log.stem)

    def _start(self, release: Release, name: str, *words: str, **variables: str) -> WorkerProcess:
        environment = CommandLine(self.folder).environment(**release.variables, **variables)
        command = [sys.executable, "-m", "holdfast", *words]
        process = WorkerProcess(command, self.folder, environment, self.folder / f"{name}.log")
        self._processes.append(process)
        return process


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", timeout=DEADLINE_SECONDS).is_success
    except httpx.TransportError:
        return False
