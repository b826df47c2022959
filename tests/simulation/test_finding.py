"""A simulation that finds nothing is decoration: with one safeguard taken out of the real code, it finds something."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from holdfast.domain.admission import SourceStanding
from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.outcome import Crashed
from holdfast.runners import frames
from holdfast.stores.database import Row
from holdfast.stores.statements.words import Statement
from holdfast.stores.verbs import enqueueing, reaping
from holdfast.worker import reports, runs
from holdfast.worker.leases import Held, LeaseBook
from tests.simulation.database import SimulatedDatabase, disk
from tests.simulation.history import simulate
from tests.simulation.kept_seeds import KEPT
from tests.simulation.strangers import Strangers
from tests.simulation.weather import LEASE_SECONDS


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
    _without(monkeypatch, ("settle", "settle.calm", "settle.succeed"), "AND j.lease_token = r.token")


def no_second_look_of_the_reaper(monkeypatch: pytest.MonkeyPatch) -> None:
    _without(monkeypatch, ("reap",), "AND j.lease_expires_at < :now")
    dawdling(monkeypatch)


def dawdling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reapers that are slow between their two statements, and many strangers, who beat when it is all but too late: so
    that somebody comes in between."""
    pages, start = reaping._expired_pages, Strangers.start

    def slow_pages(database: SimulatedDatabase) -> Iterator[list[Row]]:
        for page in pages(database):
            database.dawdle(LEASE_SECONDS / 4)
            yield page

    monkeypatch.setattr(reaping, "_expired_pages", slow_pages)
    monkeypatch.setattr(Strangers, "start", lambda self, _count, horizon: start(self, 6, horizon))


def no_admission(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SourceStanding, "allowance", lambda *_given: None)


def no_deadline_of_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Held, "lease_kill_at", property(lambda _held: float("inf")))


def leases_counted_from_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    confirm = LeaseBook.confirm
    monkeypatch.setattr(LeaseBook, "confirm", lambda self, held, sent_at: confirm(self, held, sent_at + 2.0))


def a_lost_lease_charged_as_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "Released", Crashed)


def report_replaced_after_any_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report is given up after errors that say nothing about it."""
    monkeypatch.setattr(reports, "is_away", lambda error: isinstance(error, StoreUnavailable))
    monkeypatch.setattr(reports, "proves_bad_content", lambda _error: True)


def payload_that_ends_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """The decoder of a runner raises, and its supervisor renews the leases of jobs that never start."""
    monkeypatch.setattr(frames, "decode_json", json.loads)


def enqueue_without_a_second_try(monkeypatch: pytest.MonkeyPatch) -> None:
    def give_up(*_given: object) -> None:
        raise StoreUnavailable("the session ended")

    monkeypatch.setattr(enqueueing, "_enqueue_again", give_up)


# Which rule shows it. All of them do within this many seeds.
WITHIN = 150
FLAWS: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    no_token_in_settle: "token",
    no_second_look_of_the_reaper: "a live lease was reaped",
    no_deadline_of_the_worker: "the fencing deadline",
    leases_counted_from_the_answer: "the fencing deadline",
    no_admission: "source concurrency",
    a_lost_lease_charged_as_a_crash: "charged",
    report_replaced_after_any_error: "charged",
    payload_that_ends_the_reader: "liveness",
    enqueue_without_a_second_try: "idle disconnect",
}


@pytest.mark.parametrize("flaw", FLAWS, ids=lambda flaw: flaw.__name__)
def test_a_safeguard_that_is_missing_is_found(
    flaw: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    flaw(monkeypatch)
    seeds = dict.fromkeys((*KEPT, *range(WITHIN)))  # the likeliest first
    assert any(violation.rule == FLAWS[flaw] for seed in seeds for violation in simulate(seed).violations)


def test_a_reaper_that_is_slow_does_no_harm_while_it_looks_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the simulation finds without the second look comes of its absence."""
    dawdling(monkeypatch)
    assert not any(simulate(seed).violations for seed in range(30))
