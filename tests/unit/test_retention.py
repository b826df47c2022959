"""Which rule holds for what."""

import pytest

from holdfast.domain.errors import InvalidInput
from holdfast.domain.lifecycle import TERMINAL, State
from holdfast.domain.retention import DEFAULTS, Found, Group, Kept, Rule, Rules, check_keep

DAY = 86_400.0


def rule(queue: str, keep: float | None, state: State = State.FAILED, what: Kept = Kept.JOBS) -> Rule:
    return Rule(what, queue, state, keep)


def test_there_is_an_age_for_everything_that_ends() -> None:
    assert set(DEFAULTS) == {(what, state) for what in Kept for state in TERMINAL}


def test_the_rule_of_a_queue_wins_over_the_general_one_and_that_over_the_built_in_one() -> None:
    built_in = Rules()
    assert built_in.keep_seconds(Kept.JOBS, "mail", State.FAILED) == 90 * DAY
    general = Rules([rule("*", DAY)])
    assert general.keep_seconds(Kept.JOBS, "mail", State.FAILED) == DAY
    own = Rules([rule("*", DAY), rule("mail", 2 * DAY)])
    assert own.keep_seconds(Kept.JOBS, "mail", State.FAILED) == 2 * DAY
    assert own.keep_seconds(Kept.JOBS, "slow", State.FAILED) == DAY
    assert own.keep_seconds(Kept.JOBS, "mail", State.SUCCEEDED) == 7 * DAY
    assert own.keep_seconds(Kept.HISTORIES, "mail", State.FAILED) == 90 * DAY


def test_for_ever_is_a_rule_like_any_other() -> None:
    rules = Rules([rule("*", DAY), rule("mail", None)])
    assert rules.keep_seconds(Kept.JOBS, "mail", State.FAILED) is None
    found = [Found(Kept.JOBS, queue, State.FAILED, 1e9) for queue in ("mail", "slow")]
    assert rules.due(found) == [Group(Kept.JOBS, "slow", State.FAILED, DAY)]


def test_only_what_has_been_kept_for_long_enough_is_due() -> None:
    found = [Found(Kept.JOBS, "mail", State.SUCCEEDED, age) for age in (7 * DAY - 1, 7 * DAY)]
    assert Rules().due(found) == [Group(Kept.JOBS, "mail", State.SUCCEEDED, 7 * DAY)]


def test_the_rules_in_force_are_listed_with_the_general_one_first() -> None:
    listed = Rules([rule("slow", DAY), rule("mail", None), rule("*", 3 * DAY)]).in_force()
    assert len(listed) == len(DEFAULTS) + 2
    failed = [(r.queue, r.keep_seconds) for r in listed if (r.what, r.state) == (Kept.JOBS, State.FAILED)]
    assert failed == [("*", 3 * DAY), ("mail", None), ("slow", DAY)]


def test_what_belongs_to_no_job_is_kept_as_long_as_the_oldest_history() -> None:
    assert Rules().longest_history() == 90 * DAY
    assert Rules([rule("*", 100 * DAY, what=Kept.HISTORIES)]).longest_history() == 100 * DAY
    assert Rules([rule("*", None, what=Kept.HISTORIES)]).longest_history() is None


def test_how_long_is_a_duration_or_for_ever() -> None:
    assert (check_keep("7d"), check_keep(60), check_keep("0s"), check_keep("forever")) == (7 * DAY, 60.0, 0.0, None)
    for wrong in ("soon", "-1d", "20w5"):
        with pytest.raises(InvalidInput, match=r"keep.*duration.*forever"):
            check_keep(wrong)
