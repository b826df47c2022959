"""A fleet in which something of everything has happened, and is happening: made by the store's own verbs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from holdfast.domain.answers import Beat
from holdfast.domain.job import Claimed, NewJob
from holdfast.domain.logs import LogLine, Stream
from holdfast.domain.outcome import Failed, JobError, Outcome, Released, Report, Snoozed, Succeeded
from holdfast.domain.schedule import Declaration
from holdfast.domain.views import WorkerRow
from holdfast.stores.sql_store import SqlStore


@dataclass
class Names:
    """What things are called; a corpus of hostile ones gives others."""

    queue: str = "mail"
    task: str = "send letter"
    source: str = "post office"
    worker: str = "worker-a"
    schedule: str = "every morning"
    text: str = "a letter"


class Fleet:
    def __init__(self, store: SqlStore, names: Names) -> None:
        self.store = store
        self.names = names

    def enqueue(self, **options: Any) -> str:
        names = self.names
        chosen = {"task": names.task, "queue": names.queue, "payload": {"text": names.text}, "lease_seconds": 3600.0}
        return self.store.enqueue(NewJob(**{**chosen, **options})).id

    def claim(self, job_id: str, worker: str | None = None) -> Claimed:
        found = self.store.claim_job(worker or self.names.worker, job_id)
        assert found is not None
        return found

    def report(self, claimed: Claimed, outcome: Outcome, worker: str | None = None) -> None:
        name = worker or self.names.worker
        self.store.settle([Report(claimed.job_id, claimed.attempt, claimed.lease_token, outcome, name)])

    def log(self, claimed: Claimed, *messages: str, first: int = 1) -> None:
        now = datetime.now(UTC)
        lines = [
            LogLine(claimed.job_id, claimed.attempt, first + number, now, Stream.LOG, message, "info", {"who": message})
            for number, message in enumerate(messages)
        ]
        self.store.append_logs(lines)

    def succeeded(self, **options: Any) -> str:
        job_id = self.enqueue(**options)
        claimed = self.claim(job_id)
        self.log(claimed, self.names.text)
        self.report(claimed, Succeeded({"said": self.names.text}))
        return job_id

    def failed(self, **options: Any) -> str:
        job_id = self.enqueue(max_attempts=1, **options)
        claimed = self.claim(job_id)
        self.report(claimed, Failed(JobError(self.names.text[:80], self.names.text, self.names.text)))
        return job_id

    def running(self, **options: Any) -> Claimed:
        claimed = self.claim(self.enqueue(**options))
        self.progress(claimed, 3, 10)
        self.log(claimed, self.names.text)
        return claimed

    def progress(self, claimed: Claimed, done: int, total: int) -> None:
        value = {"done": done, "total": total, "note": self.names.text}
        self.store.heartbeat([Beat(claimed.job_id, claimed.attempt, claimed.lease_token, self.names.worker, value)])

    def troubled(self) -> str:
        """Released, snoozed, taken up again elsewhere, and a late word that is refused."""
        job_id = self.enqueue()
        first = self.claim(job_id)
        self.report(first, Released("its worker stops"))
        second = self.claim(job_id, f"{self.names.worker} 2")
        self.report(second, Snoozed(0.0, self.names.text), f"{self.names.worker} 2")
        third = self.claim(job_id)
        self.report(first, Succeeded("too late"))
        self.report(third, Failed(JobError("Permanent", self.names.text, retryable=False)))
        return job_id

    def furnish(self) -> None:
        """Everything beside jobs."""
        names = self.names
        self.store.set_source(names.source, rate_limit_per_minute=60.0, max_concurrent=4)
        self.store.set_source(f"{names.source} 2", rate_limit_per_minute=60.0, paused_for=36_000.0)
        self.store.pause_queue(f"{names.queue} 2")
        self.store.add_schedule(Declaration(name=names.schedule, task=names.task, cron="0 7 * * *"))
        self.store.run_schedule_now(names.schedule)
        row = WorkerRow(id=names.worker, host=names.text[:60], pid=7, state="idle", queues=(names.queue,))
        self.store.keep_worker(row)
