"""One scenario with one fault, and what must hold afterwards; and one scenario with all faults, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from holdfast.stores.sql_store import SqlStore
from tests.nth_step.fault import Moment, Strike
from tests.nth_step.grounds import (
    Ground,
    Hands,
    Picture,
    PostgresGround,
    SqliteGround,
    assert_pool_is_sound,
    assert_verified,
    picture,
)
from tests.nth_step.mortal import Errand, Mortals
from tests.nth_step.scenarios import Scenario

MOST_STEPS = 100


def fail_at_each_step(ground: Ground, scenario: Scenario, *, lasts: bool = False, cold: bool = False) -> int:
    """How many steps there were."""
    done = untouched(ground, scenario)

    def attempt(step: int, moment: Moment) -> bool:
        return Attempt(ground, scenario, Strike(step, moment, lasts), done).survive(cold=cold)

    return for_each_step(attempt)


def die_at_each_step(
    ground: SqliteGround | PostgresGround, scenario: Scenario, mortals: Mortals, moments: Sequence[Moment]
) -> int:
    done = untouched(ground, scenario)

    def attempt(step: int, moment: Moment) -> bool:
        return MortalAttempt(ground, scenario, Strike(step, moment), done, mortals).survive()

    return for_each_step(attempt, moments)


def for_each_step(attempt: Callable[[int, Moment], bool], moments: Sequence[Moment] = tuple(Moment)) -> int:
    """At the first, the second, the third … until there is none to hit: that one has passed untouched."""
    for step in count(1):
        assert step <= MOST_STEPS, "this never ends"
        hits = [attempt(step, moment) for moment in moments]
        if not any(hits):
            break
    assert step > 1, "nothing was ever hit"
    return step - 1


def untouched(ground: Ground, scenario: Scenario) -> Picture:
    """What it looks like when nothing fails."""
    ground.fresh()
    case = scenario.prepare(ground.plain)
    with ground.hands() as hands:
        scenario.judge(ground.plain, case, scenario.act(hands, case))
    return picture(ground.plain)


class Attempt:
    def __init__(self, ground: Ground, scenario: Scenario, strike: Strike, done: Picture) -> None:
        self._ground = ground
        self._scenario = scenario
        self._strike = strike
        self._done = done

    def survive(self, *, cold: bool = False) -> bool:
        """Whether it was hit at all."""
        ground, scenario = self._ground, self._scenario
        ground.fresh()
        case = scenario.prepare(ground.plain)
        before = picture(ground.plain)
        with ground.hands(cold=cold) as hands:
            answer, error, hit = self._act(hands, case)
            self._look(before, error)
            if error is not None:
                assert hit, f"failed by itself: {error!r}"
                answer = scenario.try_again(hands, case)
            self._judge(hands, case, answer)
        return hit

    def _act(self, hands: Hands, case: Any) -> tuple[Any, Exception | None, bool]:
        """The answer, or what it was told, and whether it was hit. To be told anything else is the test's failure."""
        fault = self._ground.fault
        fault.arm(self._strike)
        try:
            return self._scenario.act(hands, case), None, fault.disarm()
        except self._scenario.told as error:
            return None, error, fault.disarm()
        finally:
            fault.disarm()

    def _look(self, before: Picture, error: Exception | None) -> None:
        """Whoever was told of a success was told the truth; otherwise all of it was done, or nothing."""
        ground = self._ground
        ground.wait_until_quiet()
        ground.assert_nothing_is_held()
        seen = picture(ground.plain)
        if error is None:
            assert seen == self._done, f"{self._strike}: a false success"
        elif self._scenario.in_parts:
            assert_verified(ground.plain)
        else:
            assert seen in (before, self._done), f"{self._strike}: half done"

    def _judge(self, hands: Hands, case: Any, answer: Any) -> None:
        ground, scenario = self._ground, self._scenario
        scenario.judge(ground.plain, case, answer)
        assert scenario.may_differ or picture(ground.plain) == self._done, f"{self._strike}: it ended otherwise"
        assert_verified(ground.plain)
        if isinstance(hands.store, SqlStore):
            assert_pool_is_sound(hands.store.database)
        ground.assert_nothing_is_held()


class Died(Exception):
    """It can tell nobody anything any more."""


class MortalAttempt(Attempt):
    """Another process acts, and is killed; what is done about it is done by this one."""

    def __init__(
        self,
        ground: SqliteGround | PostgresGround,
        scenario: Scenario,
        strike: Strike,
        done: Picture,
        mortals: Mortals,
    ) -> None:
        super().__init__(ground, scenario, strike, done)
        self._url = ground.bad_url
        self._mortals = mortals

    def _act(self, _hands: Hands, case: Any) -> tuple[Any, Exception | None, bool]:
        errand = Errand(self._url, self._scenario.name, case, self._strike)
        if isinstance(self._ground, PostgresGround):
            self._ground.fault.arm(self._strike)
            answers = self._mortals.send(errand, self._ground.kill_at_strike)
            self._ground.fault.disarm()
        else:
            answers = self._mortals.send(errand)
        return (answers[0], None, False) if answers else (None, Died(), True)


def each(scenarios: Sequence[Scenario], dialect: str) -> list[Scenario]:
    return [scenario for scenario in scenarios if dialect in scenario.dialects]
