"""What a process was told, to be held against what the audit log says.

A `Worker` claims and settles like any other, writes down every answer, and, if it is given a directory that all workers
share, has the job's file in it while it holds the job: if two of them ever held one job at once, the second could not
make the file.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from holdfast.domain.answers import Settled, Status
from holdfast.domain.digests import token_digest
from holdfast.domain.job import Claimed
from holdfast.domain.lifecycle import ACTIVE
from holdfast.domain.outcome import Outcome, Report
from holdfast.stores.sql_store import SqlStore
from tests.chaos.databases import query

LOOKS = 1_000
LONGEST_PAUSE_SECONDS = 0.25


class ClaimNote(NamedTuple):
    job_id: str
    attempt: int
    lease: str
    worker: str


class EndingNote(NamedTuple):
    job_id: str
    attempt: int
    lease: str
    event: str
    state: str


@dataclass
class Diary:
    worker: str
    claims: list[ClaimNote] = field(default_factory=list)
    endings: list[EndingNote] = field(default_factory=list)  # applied by this worker's report
    replays: list[EndingNote] = field(default_factory=list)  # applied before, said again
    refused: int = 0
    busy: int = 0
    outages: int = 0  # calls that were answered with StoreUnavailable


class Worker:
    def __init__(self, store: SqlStore, name: str, held: Path | None = None) -> None:
        self.store = store
        self.diary = Diary(name)
        self._held = held

    def claim(
        self, limit: int, queues: Sequence[str] | None = None, tasks: Sequence[str] | None = None
    ) -> list[Claimed]:
        claimed = self.store.claim(self.diary.worker, limit, queues, tasks)
        for job in claimed:
            self.take(job)
        return claimed

    def next_batch(self, limit: int) -> list[Claimed]:
        """Wait for work; empty only when every job has ended."""
        for _ in range(LOOKS):
            batch = self.claim(limit)
            if batch or not any(state in ACTIVE for state in self.store.counts()):
                return batch
            # Not in step with the others, and not so often that looking for work keeps it from being done.
            time.sleep(random.uniform(0.0, LONGEST_PAUSE_SECONDS))
        raise TimeoutError("there is work left, and for a long time nobody got any")

    def take(self, job: Claimed) -> None:
        note = ClaimNote(job.job_id, job.attempt, token_digest(job.lease_token), self.diary.worker)
        self.diary.claims.append(note)
        if self._held is not None:
            os.close(os.open(self._held / job.job_id, os.O_CREAT | os.O_EXCL))

    def settle(self, outcomes: Iterable[tuple[Claimed, Outcome]]) -> list[Settled]:
        reports = [
            Report(job.job_id, job.attempt, job.lease_token, outcome, worker=self.diary.worker)
            for job, outcome in outcomes
        ]
        if self._held is not None:
            for report in reports:
                (self._held / report.job_id).unlink()
        return self.report(reports)

    def report(self, reports: Sequence[Report]) -> list[Settled]:
        answers = self.store.settle(reports)
        for report, answer in zip(reports, answers, strict=True):
            assert (answer.job_id, answer.attempt) == (report.job_id, report.attempt)
            self._note(report, answer)
        return answers

    def _note(self, report: Report, answer: Settled) -> None:
        match answer.status:
            case Status.REFUSED:
                self.diary.refused += 1
            case Status.BUSY:
                self.diary.busy += 1
            case Status.APPLIED | Status.REPLAYED:
                assert answer.event is not None
                assert answer.state is not None
                lease = token_digest(report.lease_token)
                note = EndingNote(answer.job_id, answer.attempt, lease, answer.event, answer.state)
                (self.diary.endings if answer.status is Status.APPLIED else self.diary.replays).append(note)


CLAIMS = """
    SELECT CAST(job_id AS text), attempt, lease, worker FROM holdfast_events WHERE event = 'claimed'"""
REPORTED = """
    SELECT CAST(job_id AS text), attempt, lease, event, to_state FROM holdfast_events
    WHERE from_state = 'running' AND to_state <> 'running' AND detail ->> '{report}' IS NOT NULL"""


def logged_claims(url: str) -> list[ClaimNote]:
    return [ClaimNote(*row) for row in query(url, CLAIMS)]


def logged_endings(url: str) -> list[EndingNote]:
    """The outcomes that some worker reported; the reaper's carry no report."""
    name = "$.report" if url.startswith("sqlite") else "report"
    return [EndingNote(*row) for row in query(url, REPORTED.format(report=name))]


def assert_log_agrees(url: str, diaries: Sequence[Diary]) -> None:
    """Every claim and every ending in the log was told to exactly one worker, and the other way round."""
    endings = logged_endings(url)
    assert sorted(note for diary in diaries for note in diary.claims) == sorted(logged_claims(url))
    assert sorted(note for diary in diaries for note in diary.endings) == sorted(endings)
    assert {note for diary in diaries for note in diary.replays} <= set(endings)
