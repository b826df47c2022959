"""A real worker drains through pgbouncer; only the listener may have a connection of its own."""

import threading
from pathlib import Path

from holdfast.domain import connections
from holdfast.stores.upgrade import head
from tests.acceptance.command_line import InProcess
from tests.chaos.databases import query
from tests.pooler.conftest import Ways
from tests.servers.pgbouncer import POOL_SIZE, PgbouncerEndpoint
from tests.servers.waiting import wait_until
from tests.worker.site import Site, patched

JOBS = 400
TASKS = """
    @app.task
    def work(ctx: Context):
        ctx.log("at it")
        return 1

    @app.task
    def wait():
        while not Path("go on").exists():
            time.sleep(0.01)
"""


def test_a_worker_drains_through_the_pooler_alone(site: Site, ways: Ways) -> None:
    """Its listener cannot hear there: it says so, and polling finds every job. Afterwards the ledger is verified,
    through the pooler as well."""
    site.tasks(TASKS)
    site.enqueue_many("work", JOBS)
    site.enqueue("wait")  # so that it is not done before its listener has tried
    worker = site.worker("--drain", "--processes", "2")
    worker.wait_for_log("wake-ups are degraded")
    site.tell("go on")
    assert worker.wait() == 0
    assert site.counts() == {"succeeded": JOBS + 1}
    assert site.charged() == (0, 0)
    assert "wake-ups are listening" not in worker.text()
    assert "unexpected problem" not in worker.text()
    assert "store failed" not in worker.text()
    assert ways.backends() <= POOL_SIZE


def test_with_a_url_of_its_own_the_listener_hears_what_is_sent_through_the_pooler(site: Site, ways: Ways) -> None:
    """No poll comes due for an hour: only a notification starts a job."""
    site.tasks(TASKS)
    listen = {"POLL_INTERVAL": "3600", "HOLDFAST_LISTEN_URL": ways.direct}
    rarely = "from holdfast.worker import pickup; pickup.FIRST_WAIT_SECONDS = 3600.0"
    worker = site.worker("--processes", "1", program=patched(rarely), **listen)
    worker.wait_for_log("wake-ups are listening")
    worker.wait_for_log('"after": "idle"')
    site.enqueue_many("work", 20)
    site.wait_for_counts(succeeded=20)
    assert "wake-ups are degraded" not in worker.text()
    assert worker.stop() == 0


def test_a_worker_uses_no_more_connections_than_documented(site: Site, pgbouncer: PgbouncerEndpoint) -> None:
    site.tasks(TASKS)
    site.enqueue_many("work", JOBS)
    site.enqueue("wait", priority=-100)  # so that there is time to count
    name = site.url.rpartition("/")[2]
    site.store.close()
    wait_until(lambda: clients(pgbouncer, name) == 0, what="the connections of the test are closed")
    seen: list[int] = []
    over = threading.Event()

    def count() -> None:
        while not over.wait(0.02):
            seen.append(clients(pgbouncer, name))

    counting = threading.Thread(target=count)
    counting.start()
    try:
        worker = site.worker("--drain", "--processes", "2")
        wait_until(lambda: max(seen, default=0) > 2, what="several connections of the worker are seen")
        site.tell("go on")
        assert worker.wait() == 0
    finally:
        over.set()
        counting.join()
    assert max(seen) <= connections.WORKER


def clients(pgbouncer: PgbouncerEndpoint, database: str) -> int:
    # type, user, database, …
    return sum(1 for row in pgbouncer.admin("SHOW CLIENTS") if row[2] == database)


def test_the_commands_work_through_the_pooler(
    postgres_database: str, pgbouncer: PgbouncerEndpoint, tmp_path: Path
) -> None:
    """From an empty database on."""
    holdfast = InProcess(tmp_path, pgbouncer.through(postgres_database))
    assert holdfast("db", "upgrade", "--json").succeeded().document["after"] == head()
    assert holdfast("enqueue", "work", "{}", "--json").succeeded().document["created"]
    assert holdfast("verify", "--json").succeeded().document["jobs"] == 1
    assert query(postgres_database, "SELECT count(*) FROM holdfast_jobs") == [(1,)]
