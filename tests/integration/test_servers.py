"""The suite's own servers: they answer, are not root, keep their data, and never outlive us."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import redis
import sqlalchemy as sa

from holdfast.throwaway.postgres import PostgresEndpoint, PostgresServer, find_bin_dir, wheel_bin_dir
from holdfast.throwaway.process import ServerStartError
from holdfast.throwaway.valkey import ValkeyEndpoint, ValkeyServer
from holdfast.throwaway.workdir import Workdir
from tests.servers import shared
from tests.servers.waiting import gone, wait_until

REPOSITORY = Path(__file__).parents[2]

# Starts a server, tells its process and its directory, and waits to be killed.
OWNER_SCRIPT = """
import time
from holdfast.throwaway.{module} import {server}
server = {server}().start()
print(server.pid, server.workdir, flush=True)
while True:
    time.sleep(0.05)  # not signal.pause(): a signal that comes just before it would be heard after it, so never
"""


def query(url: str | sa.URL, statement: str) -> list[sa.Row[tuple[object, ...]]]:
    engine = sa.create_engine(url)
    try:
        with engine.begin() as connection:
            result = connection.execute(sa.text(statement))
            return list(result) if result.returns_rows else []
    finally:
        engine.dispose()


def thread_ids() -> list[int]:
    return [thread.id for thread in psutil.Process().threads()]


def test_shared_postgres_answers(postgres_server: PostgresEndpoint) -> None:
    [[version]] = query(postgres_server.url(), "select version()")
    assert str(version).startswith("PostgreSQL ")


def test_database_is_empty_and_writable(postgres_database: str) -> None:
    assert query(postgres_database, "select 1 from pg_tables where schemaname = 'public'") == []
    query(postgres_database, "create table note (body text)")
    assert query(postgres_database, "select * from note") == []


def test_database_from_template_has_its_tables(postgres_server: PostgresEndpoint) -> None:
    name = f"template_{uuid.uuid4().hex}"
    copy = f"{name}_copy"
    postgres_server.create_database(name)
    try:
        query(postgres_server.url(name), "create table note as select 'kept' as body")
        postgres_server.create_database(copy, template=name)
        assert query(postgres_server.url(copy), "select body from note") == [("kept",)]
    finally:
        postgres_server.drop_database(copy)
        postgres_server.drop_database(name)


def test_drop_cuts_open_connections(postgres_server: PostgresEndpoint) -> None:
    name = f"dropped_{uuid.uuid4().hex}"
    postgres_server.create_database(name)
    engine = sa.create_engine(postgres_server.url(name))
    with engine.connect() as connection:
        connection.execute(sa.text("select 1"))
        postgres_server.drop_database(name)
        with pytest.raises(sa.exc.OperationalError):
            connection.execute(sa.text("select 1"))
    engine.dispose()


def test_shared_valkey_answers(valkey_server: ValkeyEndpoint) -> None:
    with redis.Redis.from_url(valkey_server.url) as client:
        assert client.ping()
        server = client.info("server")
    version = str(server.get("valkey_version", server["redis_version"]))
    assert int(version.split(".")[0]) >= 7


@pytest.mark.parametrize("bin_dir", [find_bin_dir, wheel_bin_dir])
def test_own_postgres_keeps_its_data_over_restarts(bin_dir: Callable[[], Path]) -> None:
    with PostgresServer(bin_dir=bin_dir()) as server:
        query(server.url(), "create table note as select 'kept' as body")
        server.restart("fast")
        # A commit is on its way to the file before an immediate stop only with this setting.
        query(server.url(), "set synchronous_commit = on; insert into note values ('also kept')")
        server.restart("immediate")
        assert query(server.url(), "select body from note") == [("kept",), ("also kept",)]
        workdir = server.workdir
    assert not workdir.exists()


def is_root(pid: int) -> bool:
    uids = psutil.Process(pid).uids()
    return 0 in (uids.real, uids.effective, uids.saved)


def test_programs_that_the_server_account_cannot_reach(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    package = wheel_bin_dir().parents[1]
    for directory in (package, package.with_name(f"{package.name}.libs")):
        if directory.is_dir():
            shutil.copytree(directory, tmp_path / directory.name, symlinks=True)
    with PostgresServer(bin_dir=tmp_path / package.name / "pginstall" / "bin") as server:
        assert query(server.url(), "select 1") == [(1,)]


def test_settings_socket_and_account() -> None:
    with PostgresServer({"fsync": "on", "application_name": "it's ours"}) as server:
        assert not is_root(server.pid)
        assert query(server.url(), "show fsync") == [("on",)]
        assert query(server.url(), "show full_page_writes") == [("off",)]
        url = sa.make_url(server.url())
        by_socket = url.set(host=None, query={"host": str(server.socket_dir)})
        assert query(by_socket, "select inet_server_addr()") == [(None,)]


def test_failed_start_shows_the_log_and_leaves_no_process() -> None:
    server = PostgresServer({"shared_buffers": "nonsense"})
    with pytest.raises(ServerStartError, match='invalid value for parameter "shared_buffers"'):
        server.start()
    server.close()
    assert not server.workdir.exists()


def test_server_is_not_root_and_survives_the_thread_that_started_it() -> None:
    server = ValkeyServer()
    starter = threading.Thread(target=server.start)
    starter.start()
    starter.join()
    # The kernel sends the death signal when the thread is really gone, a moment after join.
    wait_until(lambda: starter.native_id not in thread_ids(), what="the starting thread is gone")
    with redis.Redis.from_url(server.url) as client:
        assert client.ping()
    assert not is_root(server.pid)
    server.close()


@contextmanager
def owner_of(module: str, server: str) -> Iterator[tuple[subprocess.Popen[str], psutil.Process, Path]]:
    script = OWNER_SCRIPT.format(module=module, server=server)
    with subprocess.Popen([sys.executable, "-c", script], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        try:
            pid, workdir = owner.stdout.readline().split()
            yield owner, psutil.Process(int(pid)), Path(workdir)
        finally:
            owner.kill()  # else a test that fails would wait for it for ever


@pytest.mark.parametrize(
    ("module", "server", "death"),
    [
        ("postgres", "PostgresServer", signal.SIGKILL),
        # To an owner without a handler it is the same as SIGKILL; Valkey shows it in the suite.
        pytest.param("postgres", "PostgresServer", signal.SIGTERM, marks=pytest.mark.long),
        ("postgres", "PostgresServer", signal.SIGINT),
        ("valkey", "ValkeyServer", signal.SIGKILL),
        ("valkey", "ValkeyServer", signal.SIGTERM),
        ("valkey", "ValkeyServer", signal.SIGINT),
    ],
    ids=lambda given: given.name if isinstance(given, signal.Signals) else given,
)
def test_no_server_outlives_its_owner(module: str, server: str, death: signal.Signals) -> None:
    with owner_of(module, server) as (owner, process, workdir):
        family = [process, *process.children(recursive=True)]
        owner.send_signal(death)
        owner.wait()
        wait_until(lambda: all(gone(process.pid) for process in family), what=f"{family} are gone")
    if death is signal.SIGINT:  # Python turns it into an orderly exit, which cleans up as well
        assert not workdir.exists()
    shutil.rmtree(workdir, ignore_errors=True)


def test_sweep_removes_only_what_dead_owners_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    abandoned, owned = Workdir(None), Workdir(None)
    abandoned.unlock()
    long_ago = time.time() - 3600
    for each in (abandoned, owned):
        os.utime(each.path, (long_ago, long_ago))
    Workdir(None).remove()
    assert not abandoned.path.exists()
    assert owned.path.exists()
    owned.remove()


def test_two_requests_at_once_get_one_server(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[ValkeyServer] = []

    def counted() -> ValkeyServer:
        started.append(ValkeyServer())
        return started[-1]

    monkeypatch.delenv(shared.URL_VARIABLES["valkey"], raising=False)
    monkeypatch.setattr(shared, "ValkeyServer", counted)
    servers = shared.SharedServers()
    address, key = servers.serve()
    urls: list[str] = []
    workers = [
        threading.Thread(target=lambda: urls.append(shared.RemoteServers(address, key).url("valkey"))) for _ in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    servers.close()
    assert len(started) == 1
    assert urls == [started[0].url] * 4


def test_running_servers_can_be_given_by_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_TEST_POSTGRES_URL", "postgresql://me:secret@db.example/other")
    monkeypatch.setenv("HOLDFAST_TEST_REDIS_URL", "redis://cache.example:1/0")
    servers = shared.SharedServers()
    given = PostgresEndpoint(servers.url("postgres"))
    assert given.url("mine") == "postgresql+psycopg://me:secret@db.example/mine"
    assert servers.url("valkey") == "redis://cache.example:1/0"
