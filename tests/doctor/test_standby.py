"""The doctor on a primary with a real standby."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url

from holdfast.domain.findings import Finding, Severity
from holdfast.stores.upgrade import upgrade
from holdfast.throwaway.postgres import PostgresServer
from holdfast.wiring.sql import open_database
from tests.chaos.databases import query
from tests.doctor.conftest import DURABLE, Ground
from tests.servers.standby import Standby, wait_until_streaming
from tests.servers.waiting import wait_until

SYNC_STATE = "SELECT sync_state FROM pg_stat_replication"


@pytest.fixture(scope="module")
def primary() -> Iterator[PostgresServer]:
    """With one standby that streams, asynchronously."""
    settings = {**DURABLE, "wal_level": "replica", "max_wal_senders": "4", "hot_standby": "on"}
    with PostgresServer(settings) as primary:
        primary.create_database("jobs")
        database = open_database(primary.url("jobs"))
        upgrade(database.engine)
        database.close()
        primary.stop()
        with Standby(primary, settings) as standby:
            primary.start()
            wait_until_streaming(primary)
            assert standby.is_running
            yield primary


@pytest.fixture
def ground(primary: PostgresServer, tmp_path: Path) -> Ground:
    return Ground(primary.url("jobs"), tmp_path, primary)


def remarks(findings: list[Finding], check: str) -> list[tuple[Severity, str]]:
    return [(finding.severity, finding.found) for finding in findings if finding.check == check]


def wait_for_state(ground: Ground, state: str) -> None:
    wait_until(lambda: query(ground.url, SYNC_STATE) == [(state,)], what=f"the standby is {state}")


def test_asynchronous_standby_is_a_warning(ground: Ground) -> None:
    wait_for_state(ground, "async")
    [found] = [text for severity, text in remarks(ground.examined(), "replication") if severity is Severity.WARNING]
    assert "every standby is asynchronous (follower)" in found


@pytest.mark.parametrize("commit", ["on", "remote_write", "remote_apply"])
def test_commits_that_wait_for_a_synchronous_standby_are_fine(ground: Ground, commit: str) -> None:
    with ground.setting("synchronous_standby_names", "follower"), ground.database_setting("synchronous_commit", commit):
        wait_for_state(ground, "sync")
        findings = ground.examined()
    assert {severity for severity, _found in remarks(findings, "durability")} == {Severity.OK}
    assert "commits wait for a synchronous standby" in str(remarks(findings, "replication"))


@pytest.mark.parametrize("commit", ["local", "off"])
def test_commits_that_do_not_wait_for_a_synchronous_standby_are_a_problem(ground: Ground, commit: str) -> None:
    with ground.setting("synchronous_standby_names", "follower"), ground.database_setting("synchronous_commit", commit):
        wait_for_state(ground, "sync")
        findings = ground.examined()
    [(severity, found)] = remarks(findings, "durability")
    assert severity is Severity.PROBLEM
    assert f"synchronous_commit is {commit}" in found
    assert "commits wait" not in str(remarks(findings, "replication"))


def test_local_commits_without_a_synchronous_standby_are_fine(ground: Ground) -> None:
    with ground.database_setting("synchronous_commit", "local"):
        wait_for_state(ground, "async")
        assert {severity for severity, _found in remarks(ground.examined(), "durability")} == {Severity.OK}


def test_subscriber_of_a_publication_is_no_standby(tmp_path: Path) -> None:
    """It copies the changes of tables, and cannot be promoted."""
    with PostgresServer({**DURABLE, "wal_level": "logical"}) as publisher:
        publisher.create_database("jobs")
        publisher.create_database("copies")
        database = open_database(publisher.url("jobs"))
        upgrade(database.engine)
        database.close()
        query(
            publisher.url("jobs"), "CREATE TABLE other (id int PRIMARY KEY); CREATE PUBLICATION changes FOR TABLE other"
        )
        query(publisher.url("jobs"), "SELECT pg_create_logical_replication_slot('changes', 'pgoutput')")
        source = make_url(publisher.url("jobs")).set(drivername="postgresql").render_as_string(hide_password=False)
        query(publisher.url("copies"), "CREATE TABLE other (id int PRIMARY KEY)")
        query(
            publisher.url("copies"),
            f"CREATE SUBSCRIPTION changes CONNECTION '{source}' PUBLICATION changes WITH (create_slot = false)",
        )
        ground = Ground(publisher.url("jobs"), tmp_path, publisher)
        wait_for_state(ground, "async")
        assert {severity for severity, _found in remarks(ground.examined(), "replication")} == {Severity.OK}
