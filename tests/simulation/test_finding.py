"""A simulation that finds nothing is decoration: with one safeguard taken out of the real code, it finds a violation.

The seeds of each begin near one that was seen to show it, so that this takes seconds; how many it takes from the first
seed on is told beside it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.domain.outcome import Crashed
from holdfast.stores.statements.words import Statement
from holdfast.worker import runs
from holdfast.worker.leases import Held, LeaseBook
from tests.simulation.database import Disk, disk
from tests.simulation.history import simulate

WITHIN = 12


@pytest.fixture(autouse=True)
def statements_are_prepared_anew() -> None:
    disk.cache_clear()


def _without(monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], words: str, instead: str = "") -> None:
    """These statements, with some words of them taken out."""
    original = Statement.driver_sql

    def driver_sql(self: Statement, dialect: str) -> str:
        text = original(self, dialect)
        if self.name not in names:
            return text
        assert words in text, f"{self.name} does not say {words}"
        return text.replace(words, instead)

    monkeypatch.setattr(Statement, "driver_sql", driver_sql)


def no_token_in_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    _without(monkeypatch, ("settle", "settle.calm"), "AND j.lease_token = r.token AND j.attempt = r.attempt")


def no_second_look_of_the_reaper(monkeypatch: pytest.MonkeyPatch) -> None:
    _without(monkeypatch, ("reap",), "j.lease_expires_at < :now AND", "")


def no_deadline_of_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Held, "lease_kill_at", property(lambda _held: float("inf")))


def leases_counted_from_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    confirm = LeaseBook.confirm
    monkeypatch.setattr(LeaseBook, "confirm", lambda self, held, sent_at: confirm(self, held, sent_at + 2.0))


def no_unique_index(monkeypatch: pytest.MonkeyPatch) -> None:
    wipe = Disk.wipe

    def wiped(self: Disk) -> None:
        wipe(self)
        self.driver.execute("DROP INDEX holdfast_jobs_unique")
        self.driver.execute(
            "CREATE UNIQUE INDEX holdfast_jobs_unique ON holdfast_jobs (task, unique_key, id)"
            " WHERE unique_key IS NOT NULL AND state IN ('pending', 'running', 'retryable')"
        )

    monkeypatch.setattr(Disk, "wipe", wiped)


def a_lost_lease_charged_as_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "Released", Crashed)


FLAWS: dict[Callable[[pytest.MonkeyPatch], None], tuple[int, str]] = {
    no_token_in_settle: (0, ""),
    no_second_look_of_the_reaper: (0, ""),
    no_deadline_of_the_worker: (0, ""),
    leases_counted_from_the_answer: (0, ""),
    a_lost_lease_charged_as_a_crash: (0, ""),
}


@pytest.mark.parametrize("flaw", FLAWS, ids=lambda flaw: flaw.__name__)
def test_a_safeguard_that_is_missing_is_found(
    flaw: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, rule = FLAWS[flaw]
    flaw(monkeypatch)
    for seed in range(first, first + WITHIN):
        found = simulate(seed).violations
        if any(violation.rule == rule for violation in found):
            return
    pytest.fail(f"{WITHIN} histories, and nobody noticed")
