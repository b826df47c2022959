"""What was found: how many things each rule was held against, and of a broken one the job that shows it best."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from holdfast.torture.checker.rules import SENTENCES
from holdfast.torture.shortest import Suspect


@dataclass(slots=True)
class Findings:
    checked: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    shortest: dict[str, Suspect] = field(default_factory=dict)

    def held(self, rule: str, things: int = 1) -> None:
        """The rule was held against so many things."""
        self.checked[str(rule)] += things

    def add(self, rule: str, detail: str, *jobs: str, length: int = 0) -> None:
        self.found[str(rule)] += 1
        best = self.shortest.get(str(rule))
        if best is None or length < best.length:
            self.shortest[str(rule)] = Suspect(str(rule), detail, jobs, length)

    def rules_checked(self) -> dict[str, int]:
        """Of every rule there is: what was held against nothing must be seen."""
        return {rule: self.checked[rule] for rule in SENTENCES}

    def suspects(self) -> list[Suspect]:
        """One a rule, in the order of the rules; the detail says how many more there are."""
        return [self._counted(self.shortest[rule]) for rule in SENTENCES if rule in self.shortest]

    def _counted(self, suspect: Suspect) -> Suspect:
        more = self.found[suspect.rule] - 1
        return suspect._replace(detail=f"{suspect.detail} (and {more:,} more)") if more else suspect
