"""What the faults do to a database and a proxy, each for as long as it lasts and no longer."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import httpx
import psycopg
import pytest

from holdfast.domain.job import NewJob
from holdfast.domain.spec import Undecodable
from holdfast.stores.postgres_url import libpq_url
from holdfast.stores.upgrade import upgrade
from holdfast.torture import tasks
from holdfast.torture.crew import Crew
from holdfast.torture.faults import KINDS, Struck
from holdfast.torture.faults.database import end_idle_sessions
from holdfast.torture.ground import Ground
from holdfast.torture.notes import Intended, Notebook, read_notes
from holdfast.torture.proxy import FaultProxy
from holdfast.torture.stage import Stage
from holdfast.wiring.sql import open_database, open_store
from tests.chaos.databases import query
from tests.serve.grounds import serving
from tests.servers.waiting import DEADLINE_SECONDS, wait_until

READ_ONLY = "SHOW default_transaction_read_only"


@dataclass(slots=True)
class WatchedStage(Stage):
    """Calls `during` in the place of every rest, which is where a fault lasts."""

    during: Callable[[], None] = lambda: None

    def rest(self, seconds: float) -> None:  # noqa: ARG002
        self.during()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    return cast(str, request.getfixturevalue("postgres_database"))


@pytest.fixture
def postgres(postgres_database: str, tmp_path: Path) -> Iterator[WatchedStage]:
    yield from staged(postgres_database, tmp_path)


@pytest.fixture
def stage(url: str, tmp_path: Path) -> Iterator[WatchedStage]:
    yield from staged(url, tmp_path)


def staged(url: str, folder: Path) -> Iterator[WatchedStage]:
    with closing(open_database(url)) as database:
        upgrade(database.engine)
    ground = Ground(url)
    with closing(open_store(ground.observing_url)) as store, closing(Notebook(folder, "torture")) as notebook:
        yield WatchedStage(ground, store, Crew(folder, [], 0.0), {}, None, {}, notebook, lease_seconds=2.0)


def strike(kind: str, stage: Stage, seed: int = 1) -> Struck:
    struck = KINDS[kind].strike(stage, random.Random(seed))
    assert struck.hits > 0
    return struck


def value(url: str, question: str) -> Any:
    with psycopg.connect(libpq_url(url).replace("target_session_attrs=read-write", ""), autocommit=True) as connection:
        return (connection.execute(question.encode()).fetchone() or (None,))[0]


def test_poisoned_payloads_are_stored_noted_and_cannot_be_decoded(stage: WatchedStage, tmp_path: Path) -> None:
    for seed in range(3):
        strike("payloads-poisoned", stage, seed)
    noted = [noted.note for noted in read_notes(tmp_path)]
    ids = [job_id for note in noted if isinstance(note, Intended) for job_id in note.job_ids]
    found = [stage.store.job(job_id) for job_id in ids]
    assert {job.task for job in found} == {tasks.UNDECODABLE}
    assert all(isinstance(job.payload, Undecodable) for job in found)
    assert stage.store.counts() == {"pending": len(ids)}


def test_refused_writes_are_seen_by_new_sessions_and_end_with_the_fault(postgres: WatchedStage) -> None:
    url = postgres.ground.url
    seen: list[str] = []

    def look() -> None:
        seen.append(value(url, READ_ONLY))
        postgres.store.enqueue(NewJob(task="work"))  # the run itself still writes

    postgres.during = look
    strike("writes-refused", postgres)
    assert set(seen) == {"on"}
    assert value(url, READ_ONLY) == "off"


def test_idle_sessions_are_ended_and_sessions_in_a_transaction_are_not(postgres: WatchedStage) -> None:
    conninfo = libpq_url(postgres.ground.url)
    with psycopg.connect(conninfo, autocommit=True) as idle, psycopg.connect(conninfo) as busy:
        busy.execute("SELECT 1")
        pid = idle.info.backend_pid

        def is_ended() -> bool:
            end_idle_sessions(postgres)  # each time those that have been idle for long enough by then
            return not query(postgres.ground.url, f"SELECT 1 FROM pg_stat_activity WHERE pid = {pid}")

        wait_until(is_ended, what="the idle session is ended")
        assert busy.execute("SELECT 2").fetchone() == (2,)


@pytest.mark.parametrize("kind", ["http-statuses", "idle-disconnects"])
def test_control_plane_behind_the_proxy_is_hit_while_the_fault_lasts(postgres: WatchedStage, kind: str) -> None:
    with serving(postgres.ground.url) as plane:
        parsed = httpx.URL(plane.url)
        client = httpx.Client(timeout=DEADLINE_SECONDS)
        with FaultProxy((parsed.host, parsed.port or 0), seed=1) as proxy, client:
            postgres.ways = {"control plane 1": proxy}
            seen: list[int] = []

            def post(path: str) -> int:
                try:
                    return client.post(f"http://127.0.0.1:{proxy.port}{path}").status_code
                except httpx.TransportError:  # the end of the idle connection arrives after the request was sent
                    return client.post(f"http://127.0.0.1:{proxy.port}{path}").status_code

            def ask() -> None:
                for path in ("/healthz", "/internal/worker/reports"):
                    seen.extend(post(path) for _ in range(10))

            ask()
            before, seen[:] = set(seen), []
            postgres.during = ask
            struck = strike(kind, postgres)
            assert struck.target == "the way to control plane 1"
            assert bool(set(seen) - before) == (kind == "http-statuses")
            seen.clear()
            ask()
            assert set(seen) == before
