"""One line that keeps a promise, and who notices when it is gone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = "src/holdfast"


@dataclass(frozen=True, slots=True)
class Mutant:
    """`file` is below src/holdfast, `killers` are pytest's names of tests, below tests/; `old` is in the file once."""

    name: str
    promise: str  # as the product says it; without this line it is broken
    file: str
    old: str
    new: str
    killers: tuple[str, ...]

    @property
    def path(self) -> str:
        return f"{PACKAGE}/{self.file}"

    @property
    def tests(self) -> tuple[str, ...]:
        return tuple(f"tests/{killer}" for killer in self.killers)

    def planted(self, text: str) -> str:
        """The file's text with the mutant in it."""
        found = text.count(self.old)
        if found != 1:
            raise ValueError(f"{self.name}: its old text is {found} times in {self.path}, and must be there once")
        return text.replace(self.old, self.new)
