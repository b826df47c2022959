"""What is measured in this process, through the store's own verbs."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from holdfast.bench.ground import BATCH, TASK, Ground
from holdfast.bench.report import Loop
from holdfast.bench.timing import FEWEST, Stop, quantile, repeated
from holdfast.domain.answers import Beat
from holdfast.domain.job import Claimed
from holdfast.domain.outcome import Report, Succeeded
from holdfast.stores.statements.words import POSTGRES, Statement
from holdfast.stores.verbs.enqueueing import enqueue_in

MOST_JOBS = 40_000  # enqueued by one measurement: they have to be removed again
_PAGE = b"\0" * 4096


class Ways:
    def __init__(self, ground: Ground, stop: Stop) -> None:
        self._ground = ground
        self._store = ground.store
        self._stop = stop

    def round_trip(self, seconds: float) -> list[float]:
        """The smallest question."""

        def ask() -> None:
            with self._store.database.reading() as transaction:
                transaction.cursor.execute("SELECT 1")
                transaction.cursor.fetchall()

        return repeated(seconds, self._stop, ask)

    def commit(self, seconds: float) -> list[float]:
        """The smallest change: a heartbeat, which touches one row and no index."""
        self.top_up(1)
        [job] = self._claim(1)
        beat = Beat(job.job_id, job.attempt, job.lease_token, self._ground.worker)
        try:
            return repeated(seconds, self._stop, lambda: self._store.heartbeat([beat]))
        finally:  # else clearing up would wait for the end of its lease
            self._settle([job])

    def flush(self, seconds: float) -> float:
        """What a commit waits for the disk. On Postgres: the same transaction with and without waiting for it, in
        turn. SQLite flushes in this process: a page written and flushed beside the file."""
        if self._store.database.dialect != POSTGRES:
            return self._flush_beside(seconds)
        with self._store.database.reading() as transaction:
            transaction.cursor.execute("SHOW synchronous_commit")
            [(usual,)] = transaction.cursor.fetchall()
        waiting = self._committed(str(usual))
        hasty = self._committed("off")
        took: dict[bool, list[float]] = {True: [], False: []}
        until = time.perf_counter() + seconds
        while len(took[False]) < FEWEST or time.perf_counter() < until:
            for waits, enqueue in ((True, waiting), (False, hasty)):
                took[waits] += repeated(0.0, self._stop, enqueue)
        return max(0.0, quantile(took[True], 0.5) - quantile(took[False], 0.5))

    def _committed(self, synchronous: str) -> Callable[[], None]:
        """One job of the bench's own, enqueued in a transaction that says how it is committed."""
        settings = Statement(
            f"bench.commit.{synchronous}", lambda _words: f"SET LOCAL synchronous_commit = {synchronous}"
        )

        def enqueue() -> None:
            with self._store.database.transaction(settings) as transaction:
                enqueue_in(transaction, self._ground.new_jobs(1))

        return enqueue

    def _flush_beside(self, seconds: float) -> float:
        folder = Path(self._store.database.engine.url.database or ".").parent
        with tempfile.TemporaryFile(dir=folder) as file:

            def write() -> None:
                file.write(_PAGE)
                file.flush()
                os.fsync(file.fileno())

            return quantile(repeated(seconds, self._stop, write), 0.5)

    def enqueue_single(self, seconds: float) -> float:
        """Jobs a second."""
        took = repeated(seconds, self._stop, lambda: self._store.enqueue(self._ground.new_jobs(1)[0]))
        return len(took) / sum(took)

    def enqueue_bulk(self, seconds: float) -> float:
        """Jobs a second, with what it takes to make them."""
        count = 0
        began = time.perf_counter()
        while count == 0 or (time.perf_counter() - began < seconds and count < MOST_JOBS):
            self._stop.check()
            self._store.enqueue_many(self._ground.new_jobs(BATCH))
            count += BATCH
        return count / (time.perf_counter() - began)

    def claim_and_settle(self, batch: int, seconds: float) -> Loop:
        """Nothing is run. Only the two verbs are timed; that there is enough to claim is seen to in between."""
        done, took, computed = 0, 0.0, 0.0
        self.top_up(batch * FEWEST)
        while took < seconds and done < MOST_JOBS:
            self._stop.check()
            began, began_computing = time.perf_counter(), time.process_time()
            claimed = self._claim(batch)
            self._settle(claimed)
            if len(claimed) < batch:
                self.top_up(max(BATCH, batch * FEWEST))
                continue
            took += time.perf_counter() - began
            computed += time.process_time() - began_computing
            done += batch
        return Loop(batch, round(done / took, 1), round(min(1.0, computed / took), 3))

    def top_up(self, count: int) -> None:
        for start in range(0, count, BATCH):
            self._stop.check()
            self._store.enqueue_many(self._ground.new_jobs(min(BATCH, count - start)))

    def _claim(self, batch: int) -> list[Claimed]:
        return list(self._store.claim(self._ground.worker, batch, [self._ground.queue], [TASK]))

    def _settle(self, claimed: list[Claimed]) -> None:
        self._store.settle([Report(job.job_id, job.attempt, job.lease_token, Succeeded()) for job in claimed])
