"""The contract suite over HTTP: the same tests, with a store whose verbs go through a control plane on a real socket.

One control plane serves all tests of the run; each test points it at a database of its own. What has no form over HTTP
(reaping, schedules, retention, claiming one job by its id) is done on the database itself, as the control plane and
operators do it; so are the test's own looks at tables.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.domain.answers import Beat
from holdfast.domain.job import Claimed, NewJob
from holdfast.domain.record import NewRecord, Written
from holdfast.domain.sources import Cached
from holdfast.domain.tokens import Issued, NewToken, Scope
from holdfast.remote.store import RemoteStore
from holdfast.serve.options import ServeSettings
from holdfast.serve.running import ControlPlane
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.sqlite import open_sqlite
from holdfast.wiring.http import open_control_plane
from holdfast.wiring.sql import open_store
from tests.contract.conftest import by_hand, clock, direct_url, migrated_file, pooler, running_clock
from tests.contract.ground import Clock
from tests.contract.kept import judge
from tests.servers.waiting import DEADLINE_SECONDS

__all__ = ["by_hand", "clock", "direct_url", "migrated_file", "pooler", "running_clock"]

OVER_HTTP = frozenset(
    (
        "announce",
        "announce_schedules",
        "announce_sources",
        "announced",
        "announced_tasks",
        "append_logs",
        "artifacts",
        "attempts",
        "cancel",
        "claim",
        "clear_cache",
        "delete_records",
        "enqueue",
        "enqueue_many",
        "enter_source",
        "events",
        "heartbeat",
        "job",
        "jobs",
        "keep_schedules",
        "keep_worker",
        "leave_source",
        "limit_queue",
        "logs",
        "pause_queue",
        "queues",
        "record",
        "records",
        "refusals",
        "replays",
        "requeue",
        "resume_queue",
        "resume_source",
        "set_source",
        "settle",
        "source",
        "source_events",
        "sources",
        "stuck",
        "workers",
    )
)

WITHOUT_THE_LEASE = "test_who_does_not_hold_the_lease_writes_nothing_and_that_is_on_record"

# What a test of these names is about cannot be had over HTTP, or is another's there.
NOT_OVER_HTTP = {
    "test_the_database_s_digest_is_ours": "the digest is also of the credential",
    "test_tokens_are_never_stored": "the digest is also of the credential",
    "test_a_claimed_job_is_running_under_a_lease": "digests of tokens leave the store with nobody",
    "test_each_outcome_leaves_one_audit_row": "digests of tokens leave the store with nobody",
    "test_forged_heartbeats_are_refused": "what cannot be a token is 422: tests/serve",
    "test_forged_reports_are_refused": "what cannot be a token is 422: tests/serve",
    "test_a_file_of_somebody_else_or_with_a_bad_name_is_refused_and_nothing_is_settled": "a report only names its own",
    "test_refusals_are_counted_by_what_they_were": "a request always names its worker",
    "test_every_option_is_stored": "a replay is a verb of its own: tests/serve",
    "test_the_history_of_a_pruned_job_can_still_be_read": "what outlives a job beyond its events is an operator's",
    "test_a_worker_is_seen_as_it_described_itself": "what a worker adds in `detail` is not shown to clients",
    "test_what_cannot_be_stored_is_named_and_nothing_is": "the body names its fields: tests/serve",
    "test_a_row_that_cannot_be_stored_is_named": "the body names its fields: tests/serve",
    "test_a_job_whose_source_has_no_row_leaves_no_trace": "over HTTP the events of one source are listed",
    "test_events_come_page_by_page": "over HTTP the events of one source are listed",
    "test_a_list_can_be_narrowed": "an empty source counts as left out in a query",
    "test_a_wrong_question_is_refused_by_name": "a query names its parameters: tests/serve",
    "test_who_holds_the_lease_writes_and_is_on_record_with_it": "a request names its attempt",
    f"{WITHOUT_THE_LEASE}[sqlite-another credential]": "the control plane knows whose token it is: tests/serve",
    f"{WITHOUT_THE_LEASE}[sqlite-unknown]": "what was refused is told of a job that is there: tests/serve",
}


# One call of every verb. All that the verbs do is proved on the database; over HTTP by `make test-long`.
ALWAYS = ("test_verbs",)


@pytest.hookimpl(tryfirst=True)  # before `-m` decides
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    ours = [item for item in items if item.path.parent == here]
    left_out = {item for item in ours if _is_left_out(item)}
    for item in ours:
        if item.path.stem not in ALWAYS:
            item.add_marker(pytest.mark.long)
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))


def _is_left_out(item: pytest.Item) -> bool:
    elsewhere = hasattr(item, "callspec") and item.callspec.params.get("database_url") == "postgres"
    return elsewhere or item.name in NOT_OVER_HTTP or item.name.partition("[")[0] in NOT_OVER_HTTP


POINTED = "sqlite:///:memory:"  # the URL of the control plane of this suite; nobody opens it


class Pointed:
    """The store that the control plane has, whichever that is now."""

    current: SqlStore

    def __getattr__(self, name: str) -> Any:
        return getattr(self.current, name)

    def close(self) -> None:
        """It is the test's."""


class OverHttp:
    def __init__(self, remote: RemoteStore, sql: SqlStore, credential: str) -> None:
        self._remote = remote
        self._sql = sql
        self._credential = credential

    def __getattr__(self, name: str) -> Any:
        return getattr(self._remote if name in OVER_HTTP else self._sql, name)

    def write_records(self, new: Sequence[NewRecord], lease: Beat | None = None) -> list[Written]:
        """Without a lease it is the database's alone."""
        return (self._sql if lease is None else self._remote).write_records(new, lease)

    def cached(self, source: str, key: str) -> Cached | None:
        return self._remote.cached(source, key, self._lease)

    def keep_cached(self, source: str, key: str, value: Any, ttl_seconds: float) -> None:
        self._remote.keep_cached(source, key, value, ttl_seconds, self._lease)

    @cached_property
    def _lease(self) -> Beat:
        """Of a job that is there so that somebody may use the cache."""
        job = self.claim_job("cache", self._sql.enqueue(NewJob(task="cache", queue="cache")).id)
        assert job is not None
        return Beat(job.job_id, job.attempt, job.lease_token, "cache")

    def claim_job(self, worker: str, job_id: str, **timing: float) -> Claimed | None:
        return self._sql.claim_job(worker, job_id, credential=self._credential, **timing)


@pytest.fixture(scope="session")
def guarded_file(tmp_path_factory: pytest.TempPathFactory, migrated_file: Path) -> tuple[Path, Issued]:
    """A migrated database in which there is a token."""
    path = tmp_path_factory.mktemp("guarded") / "holdfast.db"
    shutil.copy(migrated_file, path)
    database = open_sqlite(f"sqlite:///{path}")
    issued = SqlStore(database).create_token(NewToken("contract", (Scope.WORKER, Scope.CLIENT)))
    database.close()
    return path, issued


@pytest.fixture(scope="session")
def pointed() -> Pointed:
    return Pointed()


@pytest.fixture(scope="session")
def remote(pointed: Pointed, guarded_file: tuple[Path, Issued]) -> Iterator[RemoteStore]:
    def open_store_of_any(url: str, **options: Any) -> Any:
        """Other tests have control planes of their own while this one is up."""
        return pointed if url == POINTED else open_store(url, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("holdfast.serve.stores.open_store", open_store_of_any)
        control = ControlPlane(ServeSettings(database_url=POINTED, port=0, duties=False))
        control.start()
        remote = open_control_plane(control.url, guarded_file[1].text, timeout_seconds=DEADLINE_SECONDS)
        yield remote
        remote.close()
        control.stop()


@pytest.fixture(params=["sqlite"])
def database_url(tmp_path: Path, guarded_file: tuple[Path, Issued]) -> str:
    shutil.copy(guarded_file[0], tmp_path / "holdfast.db")
    return f"sqlite:///{tmp_path / 'holdfast.db'}"


@pytest.fixture
def open_again(
    database_url: str, running_clock: Clock, remote: RemoteStore, pointed: Pointed, guarded_file: tuple[Path, Issued]
) -> Iterator[Callable[[], SqlStore]]:
    opened: list[SqlStore] = []

    def open_one() -> SqlStore:
        opened.append(SqlStore(open_sqlite(database_url, clock=running_clock.now)))
        pointed.current = opened[0]
        return cast(SqlStore, OverHttp(remote, opened[-1], guarded_file[1].token.id))

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(open_again: Callable[[], SqlStore]) -> Iterator[SqlStore]:
    store = open_again()
    yield store
    verdict = judge(store.database)
    assert verdict.ok, verdict.violations
