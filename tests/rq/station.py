"""A folder of tasks, a database, an RQ queue of its own in the run's Valkey, and a real `rq worker` on it."""

from __future__ import annotations

import contextlib
import sys
import uuid
from pathlib import Path
from typing import Any

import psutil
from redis import Redis
from rq import Queue
from rq.job import Job as RqJob
from rq.version import VERSION as RQ_VERSION

from holdfast.domain.lifecycle import State
from tests.chaos.databases import query
from tests.worker.site import Site, WorkerProcess

RQ = Path(sys.executable).with_name("rq")
LEASE_SECONDS = 600.0  # longer than any test: a lease ends where a test ends it

TASKS = """
HERE = Path(__file__).parent

@app.task
def add(a: int, b: int) -> int:
    return a + b

@app.task
def stumble() -> None:
    raise RuntimeError("over the cable")

@app.task
def note(name: str) -> None:
    with (HERE / name).open("a") as file:
        file.write("once\\n")

@app.task
def wait_for(name: str) -> str:
    (HERE / f"{name}.pid").write_text(str(os.getpid()))
    while not (HERE / name).exists():
        time.sleep(0.02)
    return "seen"
"""


class Station:
    def __init__(self, site: Site, redis_url: str) -> None:
        self.site = site
        self.redis_url = redis_url
        self.redis: Redis = Redis.from_url(redis_url)
        self.queue = f"rq-{uuid.uuid4().hex[:12]}"
        site.tasks(TASKS)

    def close(self) -> None:
        """A killed `rq worker` leaves its work-horse to its job: whatever the test left running goes first."""
        for worker in self.site.workers:
            for child in psutil.Process(worker.pid).children() if worker.running else []:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
        self.rq_queue.delete(delete_jobs=True)
        self.redis.close()

    # RQ

    @property
    def rq_queue(self) -> Queue:
        return Queue(self.queue, connection=self.redis)

    def rq_worker(self, *flags: str, **environment: str) -> WorkerProcess:
        variables = {
            "HOLDFAST_APP": "tasks:app",
            "DATABASE_URL": self.site.url,
            "LEASE_SECONDS": str(LEASE_SECONDS),
            "HOLDFAST_HEARTBEAT_SECONDS": "1",
            **environment,
        }
        command = [str(RQ), "worker", "--url", self.redis_url, *flags, self.queue]
        log = self.site.folder / f"rq-{len(self.site.workers)}.log"
        worker = WorkerProcess(command, self.site.folder, self.site.environment(**variables), log)
        self.site.workers.append(worker)
        print(f"rq {RQ_VERSION}: worker with pid {worker.pid}")
        return worker

    def send(self, job_id: str) -> RqJob:
        """A message as anybody may send it, under an id of its own."""
        return self.rq_queue.enqueue("holdfast.rq.execute_run", job_id, job_timeout=-1)

    def answer(self, message: RqJob) -> Any:
        """What the function returned, once RQ says that the message is done."""
        self.site.wait(lambda: message.get_status(refresh=True) in ("finished", "failed"), f"{message.id} is done")
        assert message.get_status() == "finished", getattr(message.latest_result(), "exc_string", None)
        return message.return_value(refresh=True)

    def failed_messages(self) -> list[str]:
        return list(self.rq_queue.failed_job_registry.get_job_ids(cleanup=False))

    # jobs

    def enqueue(self, task: str, payload: dict[str, Any] | None = None, **options: Any) -> str:
        return self.site.enqueue(task, payload, queue=self.queue, lease_seconds=LEASE_SECONDS, **options)

    def send_new(self, task: str, payload: dict[str, Any] | None = None) -> tuple[str, RqJob]:
        job_id = self.enqueue(task, payload)
        return job_id, self.send(job_id)

    def runner(self, name: str) -> psutil.Process:
        """Of a `wait_for` job that has begun."""
        file = self.site.folder / f"{name}.pid"
        self.site.wait(lambda: file.exists() and bool(file.read_text()), f"{name} has begun")
        return psutil.Process(int(file.read_text()))

    def horse(self, name: str) -> psutil.Process:
        """The process that RQ forked for it."""
        parent = self.runner(name).parent()
        assert parent is not None
        return parent

    def end_lease(self, job_id: str) -> None:
        """As if its time had passed, in a fleet that was never away."""
        query(self.site.url, "DELETE FROM holdfast_duties WHERE name = 'reaper'")
        an_hour_ago = "strftime('%Y-%m-%dT%H:%M:%f', 'now', '-1 hour') || '000Z'"
        query(self.site.url, f"UPDATE holdfast_jobs SET lease_expires_at = {an_hour_ago} WHERE id = '{job_id}'")

    def open_gate(self, name: str) -> None:
        (self.site.folder / name).touch()

    def state(self, job_id: str) -> State:
        return self.site.job(job_id).state
