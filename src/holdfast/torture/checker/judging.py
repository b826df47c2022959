"""Judge a run: read its ledger once and its notes once, and what shows a broken rule once more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.torture.checker.expectations import Expectations
from holdfast.torture.results import Broken, Load, Second, Strike


@dataclass(frozen=True, slots=True)
class Judged:
    """At most one `Broken` a rule: the shortest history that shows it, and how many more there are."""

    broken: tuple[Broken, ...]
    load: Load
    timeline: tuple[Second, ...]
    rules_checked: dict[str, int]


def judge(url: str, notes: Path, expected: Expectations, strikes: Sequence[Strike]) -> Judged:
    raise NotImplementedError
