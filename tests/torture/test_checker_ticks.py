"""Every instant of a schedule fired once, or is on record as left out."""

from datetime import UTC, datetime, timedelta

from holdfast.torture.checker.expectations import Ticking
from holdfast.torture.checker.findings import Findings
from holdfast.torture.checker.ticks import Tick, check_ticks

SECOND = timedelta(seconds=1)
ANCHOR = datetime(2030, 1, 1, tzinfo=UTC)
EVERY = Ticking("every-two", "tick", 2.0)


def fired(seconds: float, job: str | None = "", outcome: str = "fired") -> Tick:
    job_id = f"job of {seconds:g}" if job == "" else job
    return Tick("every-two", ANCHOR + seconds * SECOND, outcome, job_id)


def skipped(first: float, last: float, *, more: bool = False) -> Tick:
    return Tick("every-two", ANCHOR + last * SECOND, "skipped", None, ANCHOR + first * SECOND, more)


def judged(*ticks: Tick, schedule: Ticking = EVERY, anchor: datetime | None = ANCHOR) -> Findings:
    found = Findings()
    check_ticks(ticks, [schedule], {} if anchor is None else {"every-two": anchor}, found)
    return found


def rules(found: Findings) -> set[str]:
    return set(found.shortest)


def test_one_after_the_other_is_in_order() -> None:
    found = judged(fired(2), fired(4), fired(6))
    assert not rules(found)
    assert (found.checked["tick_twice"], found.checked["tick_missed"]) == (3, 3)


def test_after_an_outage_one_fires_and_the_others_are_left_out() -> None:
    found = judged(fired(2), skipped(4, 10), fired(12), fired(14))
    assert not rules(found)
    assert found.checked["tick_missed"] == 7


def test_after_an_outage_all_may_fire() -> None:
    assert not rules(judged(fired(2), fired(4), fired(6), fired(8)))


def test_a_tick_whose_unique_job_was_still_there_is_dealt_with() -> None:
    assert not rules(judged(fired(2), fired(4, "job of 2", "existing"), fired(6)))


def test_of_very_many_that_were_left_out_only_the_newest_are_counted() -> None:
    assert not rules(judged(fired(2), skipped(100, 200, more=True), fired(202)))
    assert rules(judged(fired(2), skipped(100, 200), fired(202))) == {"tick_missed"}


def test_a_hole_is_a_missed_instant() -> None:
    assert rules(judged(fired(2), fired(6))) == {"tick_missed"}


def test_a_hole_before_what_was_left_out_is_a_missed_instant() -> None:
    assert rules(judged(fired(2), skipped(6, 8), fired(10))) == {"tick_missed"}


def test_the_first_instant_is_one_step_after_the_anchor() -> None:
    assert rules(judged(fired(4), fired(6))) == {"tick_missed"}
    assert not rules(judged(fired(4), fired(6), anchor=None))


def test_what_went_before_a_schedule_was_made_anew_is_not_held_against_it() -> None:
    assert not rules(judged(fired(2), fired(4), anchor=ANCHOR + 3 * SECOND))


def test_the_same_instant_twice() -> None:
    assert rules(judged(fired(2), fired(2, "another job"))) == {"tick_twice"}


def test_an_instant_that_fired_and_was_left_out() -> None:
    assert rules(judged(fired(2), fired(4), skipped(4, 6), fired(8))) == {"tick_twice"}


def test_an_instant_that_was_never_planned() -> None:
    found = judged(fired(2), fired(3), fired(4))
    assert "tick_twice" in rules(found)
    assert found.shortest["tick_twice"].jobs == ("job of 3",)


def test_two_ticks_of_one_job() -> None:
    assert rules(judged(fired(2), fired(4, "job of 2"))) == {"tick_twice"}


def test_a_tick_that_fired_without_a_job() -> None:
    assert rules(judged(fired(2, None), fired(4))) == {"tick_missed"}


def test_a_schedule_fires_as_long_as_it_was_to() -> None:
    def until(seconds: float) -> Ticking:
        return Ticking("every-two", "tick", 2.0, until=(ANCHOR + seconds * SECOND).timestamp())

    assert not rules(judged(fired(2), fired(4), schedule=until(5.9)))
    assert rules(judged(fired(2), fired(4), schedule=until(6))) == {"tick_missed"}
    assert rules(judged(schedule=until(6))) == {"tick_missed"}
    assert not rules(judged(schedule=until(1)))


def test_ticks_of_schedules_that_nobody_spoke_of_are_not_held_against_a_period() -> None:
    found = Findings()
    check_ticks([fired(2), fired(7)], [], {}, found)
    assert not rules(found)
