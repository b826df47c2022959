"""What a run says, in sentences and rows: the terminal, the page and `--json` say the same.

Nothing is judged here. The checker did that; whether a rule holds is whether `Result.broken` names it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from statistics import median
from typing import Any

from holdfast.serve.dashboard.words import NOTHING, duration
from holdfast.torture.checker.rules import SENTENCES
from holdfast.torture.faults import KINDS
from holdfast.torture.results import Broken, Result, Strike

MOST_TARGETS = 4
NOT_SHOWN = ("timeline", "lives")  # thousands of numbers, for drawings


@dataclass(frozen=True)
class Kind:
    """The strikes of one kind together. One that could not be injected says why."""

    name: str
    strikes: tuple[Strike, ...]
    left_out: str = ""

    @property
    def sentence(self) -> str:
        return KINDS[self.name].sentence if self.name in KINDS else ""

    @property
    def count(self) -> int:
        return len(self.strikes)

    @cached_property
    def targets(self) -> dict[str, int]:
        return dict(Counter(strike.target for strike in self.strikes).most_common())

    @cached_property
    def recoveries(self) -> tuple[float, ...]:
        return tuple(strike.recovered_seconds for strike in self.strikes if strike.recovered_seconds is not None)

    @property
    def middle(self) -> float | None:
        return median(self.recoveries) if self.recoveries else None

    @property
    def longest(self) -> float | None:
        return max(self.recoveries, default=None)

    @cached_property
    def bounds(self) -> tuple[float, ...]:
        """A fault that others joined may take longer."""
        return tuple(sorted({strike.bound_seconds for strike in self.strikes if strike.bound_seconds is not None}))

    @property
    def late(self) -> int:
        return sum(is_late(strike) for strike in self.strikes)

    @property
    def not_seen(self) -> int:
        """There was something to recover, and nobody saw it recover."""
        return sum(strike.bound_seconds is not None and strike.recovered_seconds is None for strike in self.strikes)


@dataclass(frozen=True, slots=True)
class Violated:
    """A rule that does not hold: the case that is told in the fewest lines, and how many there are."""

    rule: str
    shortest: Broken
    others: tuple[Broken, ...]

    @property
    def sentence(self) -> str:
        return SENTENCES.get(self.rule, "")

    @property
    def count(self) -> int:
        return 1 + len(self.others)


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    checked: int
    violations: int

    @property
    def sentence(self) -> str:
        return SENTENCES.get(self.name, "")


def is_late(strike: Strike) -> bool:
    return (
        strike.recovered_seconds is not None
        and strike.bound_seconds is not None
        and strike.recovered_seconds > strike.bound_seconds
    )


def kinds(result: Result) -> tuple[Kind, ...]:
    """The most frequent first, what was left out last."""
    struck: dict[str, list[Strike]] = {}
    for strike in result.strikes:
        struck.setdefault(strike.kind, []).append(strike)
    left_out = {name: why for name, why in result.left_out.items() if name not in struck}
    found = [Kind(name, tuple(of), result.left_out.get(name, "")) for name, of in struck.items()]
    found.sort(key=lambda kind: (-kind.count, kind.name))
    return (*found, *(Kind(name, (), why) for name, why in sorted(left_out.items())))


def violated(result: Result) -> tuple[Violated, ...]:
    """One for each rule; a case without a history is the shortest only when no other has one."""
    by_rule: dict[str, list[Broken]] = {}
    for broken in result.broken:
        by_rule.setdefault(broken.rule, []).append(broken)
    for cases in by_rule.values():
        cases.sort(key=lambda case: (not case.history, len(case.history)))
    return tuple(Violated(rule, cases[0], tuple(cases[1:])) for rule, cases in by_rule.items())


def rules(result: Result) -> tuple[Rule, ...]:
    """Those that do not hold first; else as they were checked."""
    violations = Counter(broken.rule for broken in result.broken)
    names = dict.fromkeys((*violations, *result.rules_checked))
    return tuple(Rule(name, result.rules_checked.get(name, 0), violations[name]) for name in names)


def verdict(result: Result) -> str:
    """The one sentence."""
    if not result.ok:
        return f"{_violations(result)} in {_load(result)} through {_faults(result)} in {duration(result.seconds)}."
    return f"No violation: {_load(result)} through {_faults(result)} in {duration(result.seconds)}."


def recovery(result: Result) -> str:
    """How fast all was well again, of all faults together."""
    all_kinds = kinds(result)
    recovered = sum(len(kind.recoveries) for kind in all_kinds)
    late, not_seen = sum(kind.late for kind in all_kinds), sum(kind.not_seen for kind in all_kinds)
    if not recovered and not not_seen:
        return "There was nothing to recover from."
    longest = max((kind.longest for kind in all_kinds if kind.longest is not None), default=None)
    parts = [f"All was well again after {counted(recovered, 'fault')}"]
    if recovered:
        parts += [f"the longest in {duration(longest)}", _punctual(late)]
    if not_seen:
        parts.append(f"after {not_seen:,} nobody saw it")
    return ", ".join(parts) + "."


def drained(result: Result) -> str:
    if result.drained_seconds is None:
        return "When the run was over something was still left to do."
    return f"Nothing was left to do {duration(result.drained_seconds)} after the last fault."


def shares(counts: dict[str, int]) -> Iterator[tuple[str, int, float]]:
    """Name, count and share, the largest first."""
    total = sum(counts.values())
    for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        yield name, count, count / total if total else 0.0


def bounds_in_words(kind: Kind) -> str:
    """10 s, or 10 s, 30 s."""
    return ", ".join(map(duration, kind.bounds)) or NOTHING


def targets_in_words(kind: Kind) -> str:
    """Whom it hit: worker-database-1 (3), postgres (2), 4 others."""
    named = [f"{name} ({count:,})" if kind.count > 1 else name for name, count in kind.targets.items()]
    if len(named) > MOST_TARGETS:
        named[MOST_TARGETS - 1 :] = [counted(len(named) - MOST_TARGETS + 1, "other")]
    return ", ".join(named)


def moment(seconds: float) -> str:
    """A moment of the run: 2:05 is two minutes and five seconds after it began."""
    minutes, rest = divmod(max(int(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def counted(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def jobs_per_second(result: Result) -> float:
    return result.load.jobs / result.load.seconds if result.load.seconds > 0 else 0.0


def document(result: Result, *, timeline: bool = False) -> dict[str, Any]:
    """Plain values for `--json`; what only drawings need is in it when it is asked for."""
    found = asdict(result)
    if not timeline:
        found = {name: value for name, value in found.items() if name not in NOT_SHOWN}
    return {"ok": result.ok, "verdict": verdict(result), **found, "faults": [_plain(kind) for kind in kinds(result)]}


def _plain(kind: Kind) -> dict[str, Any]:
    return {
        "kind": kind.name,
        "count": kind.count,
        "targets": kind.targets,
        "recovered": len(kind.recoveries),
        "recovery_p50_seconds": kind.middle,
        "recovery_max_seconds": kind.longest,
        "bounds_seconds": kind.bounds,
        "late": kind.late,
        "not_seen_to_recover": kind.not_seen,
        "left_out": kind.left_out or None,
    }


def _punctual(late: int) -> str:
    return f"{late:,} of them later than they must" if late else "each within its bound"


def _violations(result: Result) -> str:
    broken_rules = {broken.rule for broken in result.broken}
    return f"{counted(len(result.broken), 'violation')} of {counted(len(broken_rules), 'rule')}"


def _load(result: Result) -> str:
    return f"{counted(result.load.jobs, 'job')} and {counted(result.load.events, 'event')}"


def _faults(result: Result) -> str:
    if not result.strikes:
        return "no faults"
    names = {strike.kind for strike in result.strikes}
    return f"{counted(len(result.strikes), 'fault')} of {counted(len(names), 'kind')}"
