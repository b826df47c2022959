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
from holdfast.worker.reports import MAX_WAIT_SECONDS, Ended, Reports
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
            assert reporting.now < reporting.reports.wake_at() <= reporting.now + MAX_WAIT_SECONDS
            reporting.now = reporting.reports.wake_at()
            reporting.ask()
        assert refused not in reporting.answers
    assert [problem.job_id for problem in reporting.problems] == [refused], "it is said once"
    reporting.now = reporting.reports.wake_at()
    reporting.ask()
    assert (site.job(refused).result, len(reporting.reports)) == (1, 0)
    assert len(site.store.artifacts(refused)) == 1


# Of the database's own errors none of these says that the content is bad.
TRANSIENT = {
    "raise_exception": "P0001",
    "insufficient_privilege": "42501",
    "undefined_function": "42883",
    "internal_error": "XX000",
    "feature_not_supported": "0A000",
    "an_operators_own": "ZZ999",
    "read_only": "25006",
    "lock_not_available": "55P03",
    "query_canceled": "57014",
    "disk_full": "53100",
    "serialization_failure": "40001",
    "deadlock_detected": "40P01",
    "program_limit_exceeded": "54000",
    "io_error": "58030",
}


@pytest.mark.parametrize("code", TRANSIENT.values(), ids=TRANSIENT)
def test_an_error_that_proves_nothing_is_waited_out(postgres_site: Site, code: str) -> None:
    site, reporting = postgres_site, Reporting(postgres_site)
    held = reporting.claim(3)
    odd = held[1].job.job_id
    with refusing(site, "UPDATE ON holdfast_jobs", f"NEW.id = '{odd}' AND NEW.state = 'succeeded'", code):
        ids = [reporting.end(one, Succeeded(number)) for number, one in enumerate(held)]
        for _ in range(4):
            reporting.ask()
            reporting.now = max(reporting.now, reporting.reports.wake_at())
        assert odd not in reporting.answers
        assert (site.job(odd).state, len(reporting.reports) >= 1) == (State.RUNNING, True)
        if code != "25006":  # that says that the session is no good, whatever is sent on it
            assert [site.job(job_id).state for job_id in (ids[0], ids[2])] == [State.SUCCEEDED] * 2
    while len(reporting.reports):
        reporting.now = max(reporting.now, reporting.reports.wake_at())
        reporting.ask()
    reporting.reports.close()
    assert [(site.job(job_id).state, site.job(job_id).result) for job_id in ids] == [
        (State.SUCCEEDED, number) for number in range(3)
    ]


@pytest.mark.parametrize("code", ["22001", "22P05", "22003", "23514", "23502", "23505"])
def test_what_the_database_calls_bad_data_is_replaced(postgres_site: Site, code: str) -> None:
    site, reporting = postgres_site, Reporting(postgres_site)
    held = reporting.claim(2)
    bad = held[0].job.job_id
    with refusing(site, "UPDATE ON holdfast_jobs", f"NEW.id = '{bad}' AND NEW.state = 'succeeded'", code):
        reporting.end(held[0], Succeeded(1))
        good = reporting.end(held[1], Succeeded(2))
        reporting.ask()
    reporting.reports.close()
    error = site.job(bad).last_error
    assert error is not None
    assert (site.job(bad).state, error["code"], site.job(good).state) == (
        State.FAILED,
        "unstorable_result",
        State.SUCCEEDED,
    )


BAD_RESULTS = {"nul": "\0", "half a character": "\ud800", "large": "x" * 300_000, "nan": float("nan"), "long": 10**5000}


@pytest.mark.parametrize("result", BAD_RESULTS.values(), ids=BAD_RESULTS)
def test_what_our_own_validation_refuses_is_replaced(reporting: Reporting, site: Site, result: object) -> None:
    held = reporting.claim(2)
    bad = reporting.end(held[0], Succeeded(result))
    good = reporting.end(held[1], Succeeded(2))
    reporting.ask()
    error = site.job(bad).last_error
    assert error is not None
    assert (error["code"], site.job(good).state) == ("unstorable_result", State.SUCCEEDED)
    assert len(reporting.reports) == 0


@contextmanager
def refusing(site: Site, what: str, condition: str = "1 = 1", code: str = "23514") -> Iterator[None]:
    """As a trigger of an operator's own might, or the database itself. `code`: the SQLSTATE, on Postgres."""
    if site.is_sqlite:
        act = f"WHEN {condition} BEGIN SELECT RAISE(ABORT, 'not this one'); END"
    else:
        body = f"$$ BEGIN RAISE EXCEPTION 'not this one' USING ERRCODE = '{code}'; END $$"
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
        assert error["code"] == "unstorable_result", error
        assert "LATIN1" in error["message"] or "u540d" in error["message"]
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
