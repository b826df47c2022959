"""Schedules: each instant fires once, whoever looks and whatever is changed in between."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from holdfast.domain.errors import Conflict, InvalidInput, NotFound, RequestFailed, StoreUnavailable
from holdfast.domain.lifecycle import State
from holdfast.domain.manifest import TaskInfo
from holdfast.domain.outcome import Succeeded
from holdfast.domain.schedule import Declaration, Fired, Schedule, Tick, due
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.types import to_text
from holdfast.stores.verbs import firing
from tests.contract.ground import ByHand, Clock, failing, on_postgres, on_sqlite
from tests.contract.steps import claim, enqueue, new, postgres_later, settle_well

TEN_MINUTES = 600.0


def declare(name: str = "tidy", **values: Any) -> Declaration:
    timing = {} if "cron" in values else {"every_seconds": TEN_MINUTES}
    return Declaration(**{"name": name, "task": "tidy_up", **timing, **values})


def announce(store: SqlStore, *declared: Declaration) -> None:
    assert store.announce_schedules(declared) == ()


def fire(store: SqlStore, holder: str = "ann") -> list[Tick]:
    fired = store.fire_schedules(holder)
    assert fired.failures == ()
    return list(fired.ticks)


def outcomes(ticks: list[Tick]) -> list[tuple[str, datetime]]:
    return [(str(tick.outcome), tick.planned_at) for tick in ticks]


def planned(store: SqlStore, name: str = "tidy") -> datetime:
    next_at = store.schedule(name).next_at
    assert next_at is not None
    return next_at


def test_an_instant_fires_once_with_its_job(store: SqlStore, clock: Clock) -> None:
    announce(store, declare(job={"payload": {"a": 1.0}, "queue": "slow", "priority": 7}, tick_argument="at"))
    first = planned(store)
    assert first == clock.now() + timedelta(minutes=10)
    assert store.fire_schedules("ann") == Fired((), (), 600.0)

    clock.move(601)
    fired = store.fire_schedules("ann")
    [tick] = fired.ticks
    assert (tick.planned_at, tick.outcome, tick.holder, fired.seconds_to_next) == (first, "fired", "ann", 599.0)
    assert store.fire_schedules("bob") == Fired((), (), 599.0)
    assert store.ticks("tidy") == [tick]
    assert tick.job_id is not None
    job = store.job(tick.job_id)
    assert job.payload == {"a": 1.0, "at": to_json_time(first)}
    assert type(job.payload["a"]) is float
    assert (job.task, job.queue, job.priority, job.run_after) == ("tidy_up", "slow", 7, first)
    changed = store.schedule("tidy")
    assert (changed.last_at, changed.next_at) == (first, first + timedelta(minutes=10))
    assert [claimed.job_id for claimed in store.claim("ann", 5)] == [tick.job_id]


def to_json_time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({"misfire": "skip"}, [("skipped", 30)]),
        ({"misfire": "once"}, [("fired", 30), ("skipped", 20)]),
        ({"misfire": "all"}, [("fired", 10), ("fired", 20), ("fired", 30)]),
        ({"misfire": "all", "misfire_limit": 2}, [("fired", 20), ("fired", 30), ("skipped", 10)]),
        ({"misfire": "skip", "misfire_grace_seconds": 300}, [("fired", 30), ("skipped", 20)]),
    ],
)
@postgres_later
def test_three_missed_ticks_under_each_policy(
    store: SqlStore, clock: Clock, policy: dict[str, Any], expected: list[tuple[str, int]]
) -> None:
    announce(store, declare(**policy))
    start = clock.now()
    clock.move(32 * 60)  # nobody looked for half an hour
    assert outcomes(fire(store)) == [(outcome, start + timedelta(minutes=minute)) for outcome, minute in expected]
    jobs = [job.run_after for job in store.jobs().items]
    assert sorted(jobs) == [start + timedelta(minutes=minute) for outcome, minute in expected if outcome == "fired"]
    assert planned(store) == start + timedelta(minutes=40)
    assert fire(store) == []
    assert len(store.ticks("tidy")) == len(expected)


def test_what_was_left_out_is_on_the_record(store: SqlStore, clock: Clock) -> None:
    announce(store, declare())
    first = planned(store)
    clock.move(32 * 60)
    fire(store)
    [_fired, skipped] = store.ticks("tidy")
    assert skipped.detail == {"first": to_json_time(first), "count": 2, "more": False}
    assert (skipped.job_id, skipped.planned_at) == (None, first + timedelta(minutes=10))


def test_an_instant_that_has_fired_does_not_fire_again_whatever_became_of_the_schedule(
    store: SqlStore, clock: Clock
) -> None:
    """Changed there and back, removed and brought back: the tick's own row remembers."""
    hourly = declare(cron="0 * * * *")
    announce(store, hourly)
    first = planned(store)
    clock.move((first - clock.now()).total_seconds())
    [tick] = fire(store)
    move_next(store, first)
    assert fire(store) == []
    assert planned(store) == first + timedelta(hours=1)
    store.remove_schedule("tidy")
    announce(store, hourly)
    move_next(store, first)
    assert fire(store) == []
    assert [job.id for job in store.jobs().items] == [tick.job_id]


def move_next(store: SqlStore, moment: datetime, name: str = "tidy") -> None:
    by_hand = ByHand(store.database.engine.url.render_as_string(hide_password=False))
    by_hand("UPDATE holdfast_schedules SET next_at = :moment WHERE name = :name", moment=to_text(moment), name=name)
    by_hand.engine.dispose()


def test_of_many_that_look_at_once_one_fires(store: SqlStore, clock: Clock, open_again: Callable[[], SqlStore]) -> None:
    announce(store, *(declare(f"tidy-{number}") for number in range(10)))
    clock.move(601)
    looking = threading.Barrier(4)
    found: list[Tick] = []

    def look(one: SqlStore, name: str) -> None:
        looking.wait()
        found.extend(one.fire_schedules(name).ticks)

    threads = [threading.Thread(target=look, args=(open_again(), f"worker-{number}")) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(tick.schedule for tick in found) == sorted(f"tidy-{number}" for number in range(10))
    assert sorted(str(tick.job_id) for tick in found) == sorted(job.id for job in store.jobs().items)


@on_postgres
def test_a_schedule_that_somebody_has_locked_is_passed_by(store: SqlStore, clock: Clock, by_hand: ByHand) -> None:
    announce(store, declare("free"), declare("locked"))
    clock.move(601)
    with by_hand.engine.begin() as connection:
        connection.execute(text("SELECT 1 FROM holdfast_schedules WHERE name = 'locked' FOR UPDATE"))
        assert [tick.schedule for tick in fire(store)] == ["free"]
        with pytest.raises(StoreUnavailable, match="schedule locked stayed locked"):
            store.pause_schedule("locked")
        store.keep_schedules([declare("locked")])
    assert [tick.schedule for tick in fire(store)] == ["locked"]


def test_a_unique_job_that_is_still_active_stands_in(store: SqlStore, clock: Clock) -> None:
    announce(store, declare(job={"unique": True}))
    clock.move(601)
    [first] = fire(store)
    claimed = claim(store)
    clock.move(600)
    [second] = fire(store)
    assert (second.outcome, second.job_id) == ("existing", first.job_id)
    settle_well(store, claimed, Succeeded())
    clock.move(600)
    [third] = fire(store)
    assert third.outcome == "fired"
    assert [tick.outcome for tick in store.ticks("tidy")] == ["fired", "existing", "fired"]


def test_of_several_at_once_the_first_unique_one_stands_for_all(store: SqlStore, clock: Clock) -> None:
    announce(store, declare(job={"unique": True}, misfire="all"))
    clock.move(32 * 60)
    ticks = fire(store)
    assert [tick.outcome for tick in ticks] == ["fired", "existing", "existing"]
    assert len({tick.job_id for tick in ticks}) == 1


@on_postgres
def test_a_unique_key_in_somebodys_open_transaction_holds_up_only_its_own_schedule(
    store: SqlStore, clock: Clock, by_hand: ByHand
) -> None:
    announce(store, declare("a", job={"unique_key": "one"}), declare("b"))
    clock.move(601)
    with by_hand.engine.begin() as connection:
        mine = store.enqueue(new("tidy_up", unique_key="one"), connection)
        fired = store.fire_schedules("ann")
        assert ([tick.schedule for tick in fired.ticks], fired.failures) == (["b"], ())
        assert fired.seconds_to_next == 1.0
    [tick] = fire(store)
    assert (tick.schedule, tick.outcome, tick.job_id) == ("a", "existing", mine.id)


# broken ones


def test_a_broken_schedule_keeps_no_other_from_firing(store: SqlStore, clock: Clock, by_hand: ByHand) -> None:
    names = ("a", "b-cron", "c-payload", "d", "e-option")
    announce(store, *(declare(name) for name in names))
    by_hand("UPDATE holdfast_schedules SET cron = 'whenever', every_seconds = NULL WHERE name = 'b-cron'")
    by_hand("UPDATE holdfast_schedules SET job = '{\"payload\": 7}' WHERE name = 'c-payload'")
    by_hand("UPDATE holdfast_schedules SET job = '{\"colour\": \"red\"}' WHERE name = 'e-option'")
    clock.move(601)
    fired = store.fire_schedules("ann")
    assert [tick.schedule for tick in fired.ticks] == ["a", "d"]
    assert [(failure.schedule, failure.message.split()[1]) for failure in fired.failures] == [
        ("b-cron", "cron:"),
        ("c-payload", "payload:"),
        ("e-option", "colour:"),
    ]
    assert fired.seconds_to_next == 599.0
    # Nothing of them is half done, and they fire once they are mended.
    assert [store.ticks(name) for name in names if "-" in name] == [[], [], []]
    assert store.schedule("c-payload").next_at == store.schedule("b-cron").next_at
    store.set_schedule("b-cron", every_seconds=TEN_MINUTES)
    by_hand("UPDATE holdfast_schedules SET job = '{}'")
    assert [tick.schedule for tick in fire(store)] == ["c-payload", "e-option"]


@on_postgres
def test_schedule_whose_statement_fails_keeps_no_other_from_firing(
    store: SqlStore, clock: Clock, by_hand: ByHand
) -> None:
    names = ("a", "b", "c")
    announce(store, *(declare(name) for name in names))
    clock.move(601)
    with failing(by_hand, "UPDATE ON holdfast_schedules", "NEW.name = 'b'", "57014"):
        fired = store.fire_schedules("ann")
    assert [tick.schedule for tick in fired.ticks] == ["a", "c"]
    assert [failure.schedule for failure in fired.failures] == ["b"]
    assert [tick.schedule for tick in fire(store)] == ["b"]


@on_postgres
def test_schedule_whose_statement_fails_is_announced_again_and_keeps_no_other(store: SqlStore, by_hand: ByHand) -> None:
    declared = [declare(name) for name in ("a", "b", "c")]
    with failing(by_hand, "INSERT ON holdfast_schedules", "NEW.name = 'b'", "57014"):
        with pytest.raises(RequestFailed):
            store.announce_schedules(declared)
        assert [schedule.name for schedule in store.schedules()] == ["a", "c"]
    announce(store, *declared)
    assert [schedule.name for schedule in store.schedules()] == ["a", "b", "c"]


def test_broken_ones_never_hide_those_behind_them(
    store: SqlStore, clock: Clock, by_hand: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firing, "PAGE", 3)
    announce(store, *(declare(f"broken-{number}") for number in range(7)), declare("good"))
    by_hand("UPDATE holdfast_schedules SET job = '{\"payload\": 7}' WHERE name <> 'good'")
    clock.move(601)
    fired = store.fire_schedules("ann")
    assert ([tick.schedule for tick in fired.ticks], len(fired.failures)) == (["good"], 7)


def test_times_typed_by_hand_are_fired_or_told_of(store: SqlStore, by_hand: ByHand) -> None:
    announce(store, declare("short"), declare("vague"))
    by_hand("UPDATE holdfast_schedules SET next_at = '2020-01-01T00:00:00Z' WHERE name = 'short'")
    by_hand("UPDATE holdfast_schedules SET next_at = '2020-01-01 00:00:00' WHERE name = 'vague'")
    fired = store.fire_schedules("ann")
    assert "short" in [tick.schedule for tick in fired.ticks]
    assert [failure.schedule for failure in fired.failures] in ([], ["vague"])  # SQLite keeps it without a zone


NO_TIMES_OF_POSTGRES = ("infinity", "-infinity", "20000-01-01T00:00:00Z", "0044-03-15 12:00:00 BC")
NO_TIMES_OF_SQLITE = ("2027-99-99T00:00:00.000000Z", "soon", "", "2020-01-01 00:00:00", "9999-12-31T23:59:59-05:00")


@pytest.mark.parametrize(
    ("database_url", "odd"),
    [
        *(("postgres", value) for value in NO_TIMES_OF_POSTGRES),
        *(("sqlite", value) for value in NO_TIMES_OF_SQLITE),
    ],
    indirect=["database_url"],
)
def test_a_next_instant_that_is_no_time_keeps_no_other_and_can_be_removed(
    store: SqlStore, clock: Clock, by_hand: ByHand, odd: str
) -> None:
    announce(store, declare("a"), declare("odd"), declare("z"))
    by_hand("UPDATE holdfast_schedules SET next_at = :odd WHERE name = 'odd'", odd=odd)
    quiet = store.fire_schedules("ann")
    assert quiet.ticks == ()
    assert quiet.seconds_to_next in (600.0, 5.0)
    clock.move(601)
    fired = store.fire_schedules("ann")
    assert [tick.schedule for tick in fired.ticks] == ["a", "z"]
    assert [found.name for found in store.schedules()] == ["a", "z"]
    told = {"odd"} - {failure.schedule for failure in fired.failures}
    assert not told or odd in ("20000-01-01T00:00:00Z", "9999-12-31T23:59:59-05:00"), "a time, if none of Python's"
    [unreadable] = store.unreadable_schedules()
    assert unreadable.schedule == "odd"
    assert "next_at" in unreadable.message
    assert "holdfast schedules remove odd" in unreadable.message
    for change in (store.schedule, store.pause_schedule, store.run_schedule_now):
        with pytest.raises(Conflict, match="next_at"):
            change("odd")
    assert store.remove_schedule("odd") is True
    assert (store.unreadable_schedules(), [one.name for one in store.schedules()]) == ([], ["a", "z"])


@pytest.mark.parametrize(
    ("column", "odd"),
    [
        ("anchor_at", "infinity"),
        ("created_at", "infinity"),
        ("job", "7"),
        ("job", '{"payload": {"a": ' + "9" * 5000 + "}}"),  # which Python refuses to read
        ("overrides", "[]"),
    ],
)
def test_whatever_of_a_row_cannot_be_read_keeps_no_other(
    store: SqlStore, clock: Clock, by_hand: ByHand, column: str, odd: str
) -> None:
    announce(store, declare("a"), declare("odd"))
    by_hand(f"UPDATE holdfast_schedules SET {column} = :odd WHERE name = 'odd'", odd=odd)
    clock.move(601)
    fired = store.fire_schedules("ann")
    assert ([tick.schedule for tick in fired.ticks], [one.schedule for one in fired.failures]) == (["a"], ["odd"])
    [failure] = store.announce_schedules([declare("odd", misfire="skip"), declare("a", misfire="skip")])
    assert (failure.schedule, store.schedule("a").misfire) == ("odd", "skip")
    assert [(one.schedule, column in one.message) for one in store.unreadable_schedules()] == [("odd", True)]
    store.remove_schedule("odd")
    assert store.unreadable_schedules() == []


@on_sqlite
@pytest.mark.parametrize(
    ("column", "odd"),
    [("job", "{"), ("overrides", "nothing"), ("declared", "{"), ("every_seconds", "often"), ("misfire_limit", "few")],
)
def test_what_only_sqlite_lets_into_a_row_keeps_no_other(
    store: SqlStore, clock: Clock, by_hand: ByHand, column: str, odd: str
) -> None:
    test_whatever_of_a_row_cannot_be_read_keeps_no_other(store, clock, by_hand, column, odd)


YEAR = 365 * 24 * 3600.0


@pytest.mark.parametrize("policy", [{}, {"misfire": "skip"}, {"cron": "*/10 * * * *"}])
def test_a_clock_that_was_ahead_once_does_not_silence_a_schedule(
    store: SqlStore, clock: Clock, policy: dict[str, Any]
) -> None:
    announce(store, declare(**policy))
    first = planned(store)
    clock.move(YEAR + 555)
    fire(store)
    announce(store, declare("made-meanwhile"))
    clock.move(-YEAR - 555)
    assert fire(store) == []
    assert (planned(store), store.schedule("tidy").last_at) == (first, None)
    assert planned(store, "made-meanwhile") <= clock.now() + timedelta(minutes=10)
    before = store.schedule("tidy")
    assert fire(store) == []
    assert store.schedule("tidy") == before, "once"
    clock.move(601)
    [tick] = [tick for tick in fire(store) if tick.schedule == "tidy"]
    assert (tick.planned_at, tick.outcome) == (first, "fired")


def test_what_a_clock_ahead_has_fired_does_not_fire_again_when_its_time_comes(store: SqlStore, clock: Clock) -> None:
    announce(store, declare())
    first = planned(store)
    clock.move(601)
    [tick] = fire(store)
    clock.move(-300)
    assert fire(store) == []
    assert planned(store) == first
    clock.move(300)
    assert fire(store) == []
    assert planned(store) == first + timedelta(minutes=10)
    assert [job.id for job in store.jobs().items] == [tick.job_id]


def test_a_change_after_the_clock_was_ahead_plans_from_now(store: SqlStore, clock: Clock) -> None:
    announce(store, declare())
    first = planned(store)
    clock.move(YEAR)
    fire(store)
    clock.move(-YEAR)
    assert store.set_schedule("tidy", job={"queue": "other"}).next_at == first


def test_a_clock_that_goes_back_a_little_changes_nothing(store: SqlStore, clock: Clock) -> None:
    announce(store, declare())
    clock.move(601)
    fire(store)
    clock.move(-50)
    before = store.schedule("tidy")
    assert fire(store) == []
    assert store.schedule("tidy") == before


def test_when_there_is_nothing_nobody_need_look_soon(store: SqlStore) -> None:
    assert store.fire_schedules("ann") == Fired((), (), None)
    announce(store, declare())
    store.pause_schedule("tidy")
    assert store.fire_schedules("ann") == Fired((), (), None)


# changed at run time


def test_paused_and_resumed(store: SqlStore, clock: Clock) -> None:
    announce(store, declare(misfire="all"))
    assert store.pause_schedule("tidy").paused_at == clock.now()
    clock.move(35 * 60)
    assert fire(store) == []
    assert store.pause_schedule("tidy").paused_at == clock.now() - timedelta(minutes=35)
    resumed = store.resume_schedule("tidy")
    assert (resumed.paused_at, resumed.next_at) == (None, clock.now() + timedelta(minutes=5))
    assert fire(store) == [], "what was not wanted was not missed"
    clock.move(5 * 60)
    assert len(fire(store)) == 1
    assert store.resume_schedule("tidy") == store.schedule("tidy")


def test_changed_and_reset(store: SqlStore, clock: Clock) -> None:
    announce(store, declare(job={"payload": {"a": 1}, "queue": "slow"}))
    before = store.schedule("tidy")
    changed = store.set_schedule("tidy", job={"queue": "fast"}, misfire="all")
    assert (changed.job, changed.misfire, changed.misfire_limit) == (
        {"payload": {"a": 1}, "queue": "fast"},
        "all",
        10,
    )
    assert changed.next_at == before.next_at, "the timing is the same"
    changed = store.set_schedule("tidy", cron="0 9 * * *", timezone="Asia/Kolkata")
    assert (changed.every_seconds, changed.overrides["job"]) == (None, {"queue": "fast"})
    assert changed.next_at is not None
    assert changed.next_at.strftime("%H:%M") == "03:30"
    changed = store.set_schedule("tidy", every_seconds=60)
    assert (changed.cron, changed.next_at) == (None, clock.now() + timedelta(minutes=1))
    clock.move(60)
    [tick] = fire(store)
    assert store.job(str(tick.job_id)).queue == "fast"
    reset = store.reset_schedule("tidy")
    assert (reset.overrides, reset.job, reset.every_seconds) == ({}, before.job, TEN_MINUTES)
    assert reset.next_at == before.next_at


def test_who_read_it_before_it_was_changed_does_not_fire_it(
    store: SqlStore, clock: Clock, open_again: Callable[[], SqlStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    announce(store, declare())
    clock.move(601)
    operator = open_again()

    def paused_meanwhile(schedule: Schedule, now: datetime) -> Any:
        operator.pause_schedule("tidy")
        return due(schedule, now)

    monkeypatch.setattr("holdfast.stores.verbs.firing.due", paused_meanwhile)
    assert fire(store) == []
    assert store.counts() == {}


def test_redeclared_by_code(store: SqlStore, clock: Clock) -> None:
    announce(store, declare(job={"queue": "slow"}))
    first = store.schedule("tidy")
    clock.move(60)
    announce(store, declare(job={"queue": "fast"}))
    other_queue = store.schedule("tidy")
    assert (other_queue.job, other_queue.next_at) == ({"queue": "fast"}, first.next_at)
    assert other_queue.declared_at == clock.now()
    announce(store, declare(every_seconds=TEN_MINUTES / 2))
    other_timing = store.schedule("tidy")
    assert other_timing.next_at == first.created_at + timedelta(minutes=5)
    assert other_timing.anchor_at == first.anchor_at


def test_what_operators_changed_is_kept_when_code_declares_anew(store: SqlStore) -> None:
    announce(store, declare(job={"queue": "slow"}, misfire="skip"))
    store.set_schedule("tidy", job={"queue": "mine"}, cron="0 9 * * *")
    announce(store, declare(job={"queue": "fast", "priority": 3}, misfire="once"))
    kept = store.schedule("tidy")
    assert (kept.job, kept.cron, kept.misfire) == ({"queue": "mine", "priority": 3}, "0 9 * * *", "once")
    assert (store.reset_schedule("tidy").job, store.schedule("tidy").cron) == ({"queue": "fast", "priority": 3}, None)


def test_the_same_declaration_again_changes_nothing_but_when_it_was_said(store: SqlStore, clock: Clock) -> None:
    said = declare(job={"payload": {"é": 1.0}})
    announce(store, said)
    before = store.schedule("tidy")
    clock.move(61)
    announce(store, said)
    after = store.schedule("tidy")
    assert (after.revision, after.next_at, after.declared_at) == (before.revision, before.next_at, clock.now())
    clock.move(61)
    store.keep_schedules([said])
    assert store.schedule("tidy").declared_at == clock.now()


def test_two_releases_side_by_side_do_not_take_turns(store: SqlStore, clock: Clock) -> None:
    old, new = declare(job={"queue": "old"}), declare(job={"queue": "new"})
    announce(store, old)
    announce(store, new)
    clock.move(61)
    store.keep_schedules([old])
    assert store.schedule("tidy").job == {"queue": "new"}
    assert store.schedule("tidy").declared_at == clock.now() - timedelta(seconds=61)


def test_a_declaration_that_does_not_go_with_a_change_is_told_of_and_keeps_no_other(
    store: SqlStore, by_hand: ByHand
) -> None:
    announce(store, declare("a"), declare("b"))
    by_hand("UPDATE holdfast_schedules SET overrides = '{\"colour\": \"red\"}' WHERE name = 'a'")
    [failure] = store.announce_schedules([declare("a", misfire="skip"), declare("b", misfire="skip"), declare("c")])
    assert (failure.schedule, failure.message) == ("a", failure.message)
    assert "colour" in failure.message
    assert [(schedule.name, schedule.misfire) for schedule in store.schedules()] == [
        ("a", "once"),
        ("b", "skip"),
        ("c", "once"),
    ]


def test_removed_and_what_code_no_longer_declares_goes_on(store: SqlStore, clock: Clock) -> None:
    announce(store, declare("kept"), declare("removed"))
    assert store.remove_schedule("removed") is True
    announce(store, declare("other"))
    store.add_schedule(declare("mine"))
    assert store.remove_schedule("mine") is False
    clock.move(601)
    assert sorted(tick.schedule for tick in fire(store)) == ["kept", "other"]
    with pytest.raises(NotFound, match="there is no schedule removed"):
        store.remove_schedule("removed")


# made by operators


def test_an_operators_schedule_gets_what_was_announced_of_its_task(store: SqlStore, clock: Clock) -> None:
    made = store.add_schedule(declare(job={"payload": {"a": 1}, "priority": 5}))
    assert (made.declared, made.declared_at) == (None, None)
    store.announce([TaskInfo("tidy_up", "7", defaults={"queue": "slow", "priority": 1, "timeout_seconds": 9.0})])
    clock.move(601)
    [tick] = store.fire_schedules("ann", lease_seconds=33).ticks
    job = store.job(str(tick.job_id))
    assert (job.task_version, job.queue, job.priority, job.timeout_seconds) == ("7", "slow", 5, 9.0)
    assert job.lease_seconds == 33
    assert store.set_schedule("tidy", cron="0 9 * * *").every_seconds is None


def test_run_now_makes_a_job_and_no_tick(store: SqlStore, clock: Clock) -> None:
    announce(store, declare(tick_argument="at"))
    store.pause_schedule("tidy")
    answer = store.run_schedule_now("tidy")
    assert store.job(answer.id).payload == {"at": to_json_time(clock.now())}
    assert (store.ticks("tidy"), claim(store).job_id) == ([], answer.id)
    assert answer.state is State.PENDING


def test_user_errors_name_the_thing_and_the_rule(store: SqlStore, by_hand: ByHand) -> None:
    announce(store, declare())
    store.add_schedule(declare("mine"))
    before = by_hand.everything()
    for change in (store.schedule, store.pause_schedule, store.resume_schedule, store.reset_schedule):
        with pytest.raises(NotFound, match="there is no schedule nightly"):
            change("nightly")
    with pytest.raises(NotFound, match="nightly"):
        store.run_schedule_now("nightly")
    with pytest.raises(Conflict, match="there is a schedule tidy already"):
        store.add_schedule(declare())
    with pytest.raises(Conflict, match="mine was made by an operator"):
        store.reset_schedule("mine")
    for changes, field in (
        ({"colour": "red"}, "colour"),
        ({"task": "other"}, "task"),
        ({"cron": "whenever"}, "cron"),
        ({"timezone": "Mars/Base"}, "timezone"),
        ({"every_seconds": 0.1}, "every"),
        ({"cron": "* * * * *", "every_seconds": 5}, "every"),
        ({"job": {"priority": 1000}}, "priority"),
        ({"misfire": "maybe"}, "misfire"),
        ({"misfire_grace_seconds": 4}, "misfire_grace"),
    ):
        with pytest.raises(InvalidInput) as refused:
            store.set_schedule("tidy", **changes)
        assert refused.value.field == field
    with pytest.raises(InvalidInput, match="limit"):
        store.ticks("tidy", 0)
    with pytest.raises(InvalidInput, match="holder"):
        store.fire_schedules("")
    assert by_hand.everything() == before


def test_a_firing_that_fails_half_way_leaves_nothing(
    store: SqlStore, clock: Clock, by_hand: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a process that dies there would."""
    announce(store, declare())
    enqueue(store)
    clock.move(601)
    before = by_hand.everything()

    def dies(*_arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(firing, "_with_job", dies)
        with pytest.raises(KeyboardInterrupt):
            store.fire_schedules("ann")
    assert by_hand.everything() == before
    assert len(fire(store)) == 1
