"""What the faults do to a database and a proxy, each for as long as it lasts and no longer."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import psycopg
import pytest

from holdfast.domain.job import NewJob
from holdfast.domain.spec import Undecodable
from holdfast.runners.descendants import descendants
from holdfast.stores.postgres_url import libpq_url
from holdfast.stores.upgrade import upgrade
from holdfast.torture import tasks
from holdfast.torture.crew import DATABASE, RQ, Crew, Role
from holdfast.torture.faults import KINDS, Struck, database
from holdfast.torture.faults.database import end_idle_sessions
from holdfast.torture.ground import Ground
from holdfast.torture.notes import Intended, Notebook, read_notes
from holdfast.torture.proxy import FaultProxy
from holdfast.torture.proxy_line import Slowness
from holdfast.torture.stage import HeldJob, Stage
from holdfast.wiring.sql import open_database, open_store
from tests.chaos.databases import query
from tests.serve.grounds import serving
from tests.servers.waiting import DEADLINE_SECONDS, gone, wait_until
from tests.torture.test_proxy import Echo, Way, connected, echo, is_reset, is_turned_away, proxy, read

__all__ = ["echo", "proxy"]

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


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[WatchedStage]:
    """On a file with no tables: for faults that do nothing to the database."""
    ground = Ground(f"sqlite:///{tmp_path}/jobs.db")
    with closing(open_store(ground.url)) as store, closing(Notebook(tmp_path, "torture")) as notebook:
        yield WatchedStage(ground, store, Crew(tmp_path, [], 0.0), {}, None, {}, notebook, lease_seconds=2.0)


def test_terminated_backends_are_those_of_all_sessions_but_our_own(postgres: WatchedStage) -> None:
    url = postgres.ground.url
    everybody = next(seed for seed in count() if random.Random(seed).choice((0.3, 1.0)) == 1.0)
    with psycopg.connect(libpq_url(url)) as session:
        session.execute("SELECT 1")
        rests: list[Any] = []
        postgres.during = lambda: rests.append(query(url, "SELECT 1"))
        struck = strike("backends-terminated", postgres, everybody)
        assert (struck.target, struck.detail) == ("backends", f"{struck.hits} of them")
        assert rests, "the server itself answers all the while"
        with pytest.raises(psycopg.OperationalError):
            session.execute("SELECT 2")


def test_writes_are_refused_on_a_server_of_our_own_also_in_open_sessions(
    bare: WatchedStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The setting of a whole server, which the server of the tests does not get."""
    said: list[tuple[str, str]] = []

    @contextmanager
    def recording(_ground: Ground, options: str = "") -> Iterator[Any]:
        def execute(statement: Any, _parameters: Any = ()) -> None:
            said.append((options, statement if isinstance(statement, str) else statement.as_string(None)))

        yield SimpleNamespace(execute=execute)

    monkeypatch.setattr(database, "_connected", recording)
    bare.ground = Ground("postgresql://host/torture", server=cast(Any, object()))
    bare.during = lambda: said.append(("", "rest"))
    strike("writes-refused", bare)
    name, ours = "default_transaction_read_only", "-c default_transaction_read_only=off"
    assert [words for words in said if words[1] != database.TERMINATE] == [
        (ours, f'ALTER DATABASE "torture" SET "{name}" = on'),
        (ours, f'ALTER SYSTEM SET "{name}" = on'),
        (ours, "SELECT pg_reload_conf()"),
        ("", "rest"),
        ("", "rest"),
        (ours, f'ALTER DATABASE "torture" RESET "{name}"'),
        (ours, f'ALTER SYSTEM RESET "{name}"'),
        (ours, "SELECT pg_reload_conf()"),
    ]


@pytest.mark.parametrize("server", ["none", "runs on", "gave up"])
def test_disk_is_full_for_a_while_and_a_server_that_gave_up_is_started_again(bare: WatchedStage, server: str) -> None:
    done: list[str] = []

    def fill() -> int:
        done.append("fill")
        return 3 << 20

    disk = SimpleNamespace(fill=fill, free=lambda: done.append("free"))
    found = SimpleNamespace(is_running=server == "runs on", restart=done.append)
    bare.ground = Ground("", server=None if server == "none" else cast(Any, found), disk=cast(Any, disk))
    bare.during = lambda: done.append("rest")
    struck = strike("disk-full", bare)
    assert done == ["fill", "rest", "free", *(["immediate"] if server == "gave up" else [])]
    assert struck.detail.startswith("3 MiB, ")


def test_slow_way_delays_what_is_sent_while_the_fault_lasts(bare: WatchedStage, proxy: Way, echo: Echo) -> None:
    client, _talk = connected(proxy, echo)
    bare.ways = {"control plane 1": proxy}
    during: list[Slowness | None] = []

    def send_on() -> None:
        during.append(proxy._faults.slowness)
        client.sendall(b"late")

    bare.during = send_on
    struck = strike("slow-way", bare)
    [slowness] = during
    assert slowness is not None
    assert (slowness.jitter, slowness.chance) == (4 * slowness.seconds, 0.5)
    assert struck.detail.endswith(f" s, {1000 * slowness.seconds:.0f} ms and more a packet")
    assert (struck.target, struck.hits) == ("the way to control plane 1", 1)
    assert proxy._faults.slowness is None
    assert read(client, 4) == b"late", "what waits is sent in the end"


def test_refused_way_resets_what_is_open_and_turns_new_connections_away(
    bare: WatchedStage, proxy: Way, echo: Echo
) -> None:
    client, _talk = connected(proxy, echo)
    bare.ways = {"control plane 1": proxy}
    during: list[bool] = []
    bare.during = lambda: during.extend((is_reset(client), is_turned_away(proxy), is_turned_away(proxy)))
    struck = strike("refused", bare)
    assert during == [True, True, True]
    assert struck.hits == 3, "one that was open, two that were turned away"
    connected(proxy, echo)


def crew_of(folder: Path, door: str, command: Sequence[str]) -> Crew:
    return Crew(folder, [Role(f"worker-{door}-1", door, lambda _life: (command, os.environ))], 0.0)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[WatchedStage]:
    yield from staged(f"sqlite:///{tmp_path}/jobs.db", tmp_path)


def test_killed_worker_takes_its_own_process_alone_and_names_the_jobs_it_held(
    file: WatchedStage, tmp_path: Path
) -> None:
    file.crew = crew_of(tmp_path, DATABASE, ["sleep", "300"])
    member = file.crew.member("worker-database-1")
    held = file.store.enqueue(NewJob(task="mine")).id
    other = file.store.enqueue(NewJob(task="other")).id
    assert file.store.claim_job("worker-database-1-a", held)
    assert file.store.claim_job("worker-http-1-b", other)
    member.start()
    struck = strike("worker-killed", file)
    assert (struck.target, struck.detail, struck.doors) == (member.name, "1 jobs held", (DATABASE,))
    assert struck.held == (HeldJob(held, 1),)
    wait_until(lambda: not member.is_running, what="the worker has ended")
    assert member.ending == "killed"
    assert KINDS["worker-killed"].strike(file, random.Random(1)).hits == 0, "nobody is there to be killed"


def test_killed_rq_worker_takes_its_work_horse_along(file: WatchedStage, tmp_path: Path) -> None:
    file.crew = crew_of(tmp_path, RQ, ["sh", "-c", "sleep 300 & wait"])
    member = file.crew.member("worker-rq-1")
    member.start()
    wait_until(lambda: bool(descendants(member.pid)), what="the work-horse has started")
    [horse] = descendants(member.pid)
    assert strike("worker-killed", file).doors == (RQ,)
    wait_until(lambda: gone(horse), what="the work-horse has ended")
    wait_until(lambda: not member.is_running, what="the worker has ended")
