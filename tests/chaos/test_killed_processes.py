"""Processes that are killed in the middle of whatever they do: what the store said it has, it has."""

import random
from collections.abc import Sequence
from pathlib import Path

from holdfast.stores.sql_store import SqlStore
from tests.chaos.crew import Member
from tests.chaos.databases import assert_verified, opened, query
from tests.chaos.toil import Toiler, acknowledged_in, assert_nothing_lost, finish
from tests.servers.waiting import wait_until

WAVES = 3
VICTIMS = 4
MOST_LINES = 60
LEASE_SECONDS = 0.2
EXPIRED = {
    "sqlite": "lease_expires_at < strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z'",
    "postgresql": "lease_expires_at < clock_timestamp()",
}


def toil_for_ever(number: int, url: str, directory: Path, wave: int) -> None:
    with opened(url) as store:
        name = f"victim-{wave}-{number}"
        toiler = Toiler(store, name, directory / name, LEASE_SECONDS)
        while True:
            toiler.take_a_turn()
            store.reap(name, period=0.1, lease_seconds=3600, heartbeat_seconds=0)


def wait_for_lines(file: Path, enough: int) -> None:
    def are_there() -> bool:
        return file.exists() and len(file.read_bytes().splitlines()) >= enough

    wait_until(are_there, what=f"{file.name} has {enough} lines")


def wait_for_endings(directory: Path) -> None:
    """On a slow machine most leases end before the report of their job."""
    wait_until(lambda: any(b"ended" in file.read_bytes() for file in directory.iterdir()), what="a job has ended")


def kill_wave(members: Sequence[Member], url: str, directory: Path, wave: int) -> None:
    chance = random.Random(wave)
    for number, member in enumerate(members):
        member.prepare(toil_for_ever, (number, url, directory, wave))
    for member in members:
        member.wait_ready()
        member.go()
    wait_for_endings(directory)
    for number, member in enumerate(members):
        wait_for_lines(directory / f"victim-{wave}-{number}", chance.randint(0, MOST_LINES))
        member.kill()


def test_killed_processes_lose_nothing_that_was_acknowledged(store: SqlStore, store_url: str, tmp_path: Path) -> None:
    directory = tmp_path / "acknowledged"
    directory.mkdir()
    members = [Member() for _ in range(WAVES * VICTIMS)]
    try:
        for wave in range(WAVES):
            kill_wave(members[wave * VICTIMS : (wave + 1) * VICTIMS], store_url, directory, wave)
            assert_verified(store_url)
    finally:
        for member in members:
            member.kill()
    acknowledged = acknowledged_in(directory.iterdir())
    assert acknowledged.enqueued
    assert acknowledged.ended
    assert_nothing_lost(store_url, acknowledged)

    held = "SELECT count(*) FROM holdfast_jobs WHERE state = 'running'"
    expired = f"{held} AND {EXPIRED[store.database.dialect]}"
    wait_until(lambda: query(store_url, held) == query(store_url, expired), what="the dead have lost their leases")
    finish(store)
    assert_nothing_lost(store_url, acknowledged)
