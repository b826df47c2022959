"""A report that the store does not take must not hold up its neighbours: their answers come, and it waits by itself."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.domain.answers import Settled
from holdfast.domain.artifacts import Artifact
from holdfast.domain.events import Event, Events, Problem
from holdfast.domain.lifecycle import State
from holdfast.domain.logs import LogLine, Stream
from holdfast.domain.manifest import TaskInfo
from holdfast.domain.outcome import Failed, JobError, Outcome, Released, Succeeded, Usage
from holdfast.domain.timing import choose
from holdfast.periodic.retrying import Retrying
from holdfast.stores.postgres import open_postgres
from holdfast.stores.upgrade import upgrade
from holdfast.throwaway.postgres import PostgresEndpoint
from holdfast.worker.job_logs import JobLogs
from holdfast.worker.leases import Held, LeaseBook
from holdfast.worker.reports import LONGEST_WAIT_SECONDS, Ended, Reports
from tests.chaos.databases import connect, query
from tests.servers.waiting import wait_until
from tests.worker.site import Site

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Reporting:
    """The reports of a worker on a real store, without the worker around them."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.problems: list[Problem] = []
        self.answers: dict[str, Settled] = {}
        events = Events(self._hear)
        self.book = LeaseBook(choose(60.0))
        self.retrying = Retrying("settle", events, longest=2.0)
        self.reports = Reports(lambda: site.store, "w", events, lambda: None, self._settled, self.retrying)
        self.now = 1000.0

    def _hear(self, event: Event) -> None:
        if isinstance(event, Problem):
            self.problems.append(event)

    def _settled(self, ended: Ended, answer: Settled) -> None:
        self.answers[ended.held.job.job_id] = answer

    def claim(self, count: int) -> list[Held]:
        for _ in range(count):
            self.site.enqueue("x")
        return [self.book.add(job, TaskInfo("x"), self.now) for job in self.site.store.claim("w", count)]

    def end(self, held: Held, outcome: Outcome, *names: str) -> str:
        job = held.job
        for name in names:
            held.artifacts[name] = Artifact(job.job_id, job.attempt, name, "text/plain", 1, "0" * 64)
        self.reports.add(Ended(held, outcome, Usage()))
        return job.job_id

    def ask(self) -> None:
        """Once, and hear the answer."""
        self.reports.step(self.now)
        wait_until(self._is_answered, what="an answer")

    def _is_answered(self) -> bool:
        if self.reports._desk.busy:
            self.reports.step(self.now)
        return not self.reports._desk.busy


@pytest.fixture
def reporting(site: Site) -> Iterator[Reporting]:
    reporting = Reporting(site)
    yield reporting
    reporting.reports.close()


def test_files_that_cannot_be_recorded_cost_only_their_own_attempt(reporting: Reporting, site: Site) -> None:
    held = reporting.claim(4)
    good = [reporting.end(held[0], Succeeded(1)), reporting.end(held[3], Failed(JobError("E", "its own")))]
    saved = reporting.end(held[1], Succeeded(None, f"{held[1].job.attempt_id}/a"), "a")
    released = reporting.end(held[2], Released("stopping"), "a")
    with refusing(site, "INSERT ON holdfast_artifacts"):
        reporting.ask()
    assert set(reporting.answers) == {*good, saved, released}
    assert [site.job(job_id).state for job_id in (*good, saved)] == [State.SUCCEEDED, State.RETRYABLE, State.FAILED]
    error = site.job(saved).last_error
    assert error is not None
    assert (error["code"], "not this one" in error["message"]) == ("unstorable_result", True)
    assert site.job(released).failures == 0, "what it says of itself is told as it is, without its files"
    assert {(problem.job_id, problem.attempt) for problem in reporting.problems} == {(saved, 1), (released, 1)}
    assert len(reporting.reports) == 0


def test_what_the_store_takes_in_no_form_waits_by_itself(reporting: Reporting, site: Site) -> None:
    held = reporting.claim(2)
    refused = held[0].job.job_id
    with refusing(site, "UPDATE ON holdfast_jobs", f"NEW.id = '{refused}' AND NEW.state <> 'running'"):
        reporting.end(held[0], Succeeded(1), "a")
        other = reporting.end(held[1], Succeeded(2))
        reporting.ask()
        assert set(reporting.answers) == {other}
        assert site.job(other).state is State.SUCCEEDED
        [late] = reporting.claim(1)
        reporting.end(late, Succeeded(3))
        reporting.ask()
        assert set(reporting.answers) == {other, late.job.job_id}, "who comes later does not wait either"
        for _ in range(3):
            assert len(reporting.reports) == 1, "it is not forgotten"
            assert reporting.now < reporting.reports.wake_at() <= reporting.now + LONGEST_WAIT_SECONDS
            reporting.now = reporting.reports.wake_at()
            reporting.ask()
        assert refused not in reporting.answers
    assert [problem.job_id for problem in reporting.problems] == [refused], "it is said once"
    reporting.now = reporting.reports.wake_at()
    reporting.ask()
    assert (site.job(refused).result, len(reporting.reports)) == (1, 0)
    assert len(site.store.artifacts(refused)) == 1


@contextmanager
def refusing(site: Site, what: str, condition: str = "1 = 1") -> Iterator[None]:
    """As an operator's own trigger might, or a right that is missing."""
    if site.is_sqlite:
        act = f"WHEN {condition} BEGIN SELECT RAISE(ABORT, 'not this one'); END"
    else:
        body = "$$ BEGIN RAISE EXCEPTION 'not this one'; END $$"
        query(site.url, f"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS {body}")
        act = f"FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION refuse()"
    query(site.url, f"CREATE TRIGGER refusing BEFORE {what} {act}")
    yield
    query(site.url, "DROP TRIGGER refusing" + ("" if site.is_sqlite else f" ON {what.split()[-1]}"))


@pytest.fixture
def latin_one(postgres_server: PostgresEndpoint, tmp_path: Path) -> Iterator[Site]:
    name = f"latin_{uuid.uuid4().hex}"
    with connect(postgres_server.url("postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    database = open_postgres(postgres_server.url(name))
    upgrade(database.engine)
    database.close()
    with Site(tmp_path, postgres_server.url(name)) as site:
        yield site
    postgres_server.drop_database(name)


def test_what_the_database_cannot_spell_is_said_in_letters_that_it_has(latin_one: Site) -> None:
    reporting = Reporting(latin_one)
    held = reporting.claim(4)
    bad = [
        reporting.end(held[0], Succeeded(1), "名.html"),
        reporting.end(held[1], Failed(JobError("E", "名")), "a"),
        reporting.end(held[2], Succeeded("名")),
    ]
    reporting.book.said_progress(held[3], {"note": "名"})
    told = reporting.end(held[3], Succeeded(4))
    reporting.ask()
    reporting.reports.close()
    for job_id in bad:
        error = latin_one.job(job_id).last_error
        assert error is not None
        assert (error["code"], "u540d" in error["message"]) == ("unstorable_result", True), error
    assert latin_one.job(told).last_error is None, "progress is only for people to look at"
    assert latin_one.job(told).result == 4

    logs = JobLogs(lambda: latin_one.store, lambda: None, reporting.retrying)
    said = ["one", "名", "three", "名", "five"]
    logs.add([LogLine(told, 1, number, NOW, Stream.LOG, text) for number, text in enumerate(said)])

    def are_stored() -> bool:
        logs.step(reporting.now)
        return len(logs) == 0

    wait_until(are_stored, what="what can be stored is")
    logs.close()
    assert [line.message for line in latin_one.store.logs(told, limit=10)] == ["one", "three", "five"]
    assert len(reporting.reports) == 0
