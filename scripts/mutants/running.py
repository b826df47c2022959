"""All mutants, one after the other. What was found of one is kept until its file, its tests or it itself changes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from scripts.mutants.ground import Ground, copied
from scripts.mutants.mutant import REPOSITORY, Mutant
from scripts.mutants.trial import Trials, Verdict
from tests.servers.shared import URL_VARIABLES, Kind, SharedServers

KEPT = REPOSITORY / ".cache" / "mutants.json"
SERVERS: tuple[Kind, ...] = ("postgres", "valkey")
FEW = 8  # whose tests start servers of their own


class NotGreen(Exception):
    """The tests fail without any mutant."""


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    verdict: Verdict
    killers: tuple[str, ...]
    seconds: float
    fingerprint: str
    output: str = ""  # of pytest, where it was not killed


class Kept:
    """What earlier runs have found."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._findings: dict[str, Finding] = {}
        if file.exists():
            for entry in json.loads(file.read_text(encoding="utf-8")):
                entry |= {"verdict": Verdict(entry["verdict"]), "killers": tuple(entry["killers"])}
                self._findings[entry["name"]] = Finding(**entry)

    def get(self, mutant: Mutant) -> Finding | None:
        """Only what still holds; a survivor is tried again."""
        found = self._findings.get(mutant.name)
        holds = found is not None and (found.verdict, found.fingerprint) == (Verdict.KILLED, fingerprint(mutant))
        return found if holds else None

    def add(self, finding: Finding) -> None:
        self._findings[finding.name] = finding
        self._file.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps([asdict(each) for each in self._findings.values()], indent=1)
        new = self._file.with_suffix(".new")
        new.write_text(text, encoding="utf-8")
        new.rename(self._file)


def fingerprint(mutant: Mutant, root: Path = REPOSITORY) -> str:
    files = sorted({mutant.path, *(test.partition("::")[0] for test in mutant.tests)})
    texts = [(root / file).read_bytes() for file in files]
    return sha256(b"\0".join([repr(mutant).encode(), *texts])).hexdigest()


def run(mutants: Sequence[Mutant], kept: Kept, told: Callable[[Finding], None]) -> list[Finding]:
    """The findings of all, in their order; `told` hears of each that was made now."""
    findings = {mutant.name: found for mutant in mutants if (found := kept.get(mutant)) is not None}
    rest = [mutant for mutant in mutants if mutant.name not in findings]
    if rest:
        with copied() as ground, servers(len(rest)) as urls, closing(Trials(ground, urls)) as trials:
            see_green(trials, rest)
            for mutant in rest:
                findings[mutant.name] = finding = try_one(ground, trials, mutant)
                kept.add(finding)
                told(finding)
    return [findings[mutant.name] for mutant in mutants]


def try_one(ground: Ground, trials: Trials, mutant: Mutant) -> Finding:
    with ground.planted(mutant):
        trial = trials.run(mutant.tests)
    said = "" if trial.verdict is Verdict.KILLED else trial.output
    return Finding(mutant.name, trial.verdict, trial.killers, trial.seconds, fingerprint(mutant), said)


def see_green(trials: Trials, mutants: Sequence[Mutant]) -> None:
    """A test that is red anyway says nothing of a mutant."""
    tests = list(dict.fromkeys(test for mutant in mutants for test in mutant.tests))
    trial = trials.run(tests, stop_early=False)
    if not trial.green:
        red = ", ".join(red.test for red in trial.red)
        raise NotGreen(f"without any mutant these are red: {red or 'none, but'}\n{trial.output[-3000:]}")


@contextmanager
def servers(trials: int) -> Iterator[dict[str, str]]:
    """One of each for many trials, by the variables in which a test run looks for them."""
    if trials <= FEW:
        yield {}
        return
    shared = SharedServers()
    try:
        yield {URL_VARIABLES[kind]: shared.url(kind) for kind in SERVERS}
    finally:
        shared.close()
