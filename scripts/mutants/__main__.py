"""python -m scripts.mutants: plant every mutant, and write docs/mutants.md. Ends with 1 where one survived.

--only NAME   this mutant (may be repeated); docs/mutants.md stays as it is
--list        what there is, without running anything
--json        what was found, for programs; docs/mutants.md stays as it is
--anew        forget what earlier runs have found
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from scripts.mutants import page
from scripts.mutants.mutant import Mutant
from scripts.mutants.running import KEPT, Finding, Kept, NotGreen, run
from scripts.mutants.trial import Verdict

TABLE = "scripts.mutants.table"


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    mutants: Sequence[Mutant] = import_module(given.table).MUTANTS
    unknown = set(given.only) - {mutant.name for mutant in mutants}
    if unknown:
        print(f"error: there is no mutant {', '.join(sorted(unknown))}; --list shows them", file=sys.stderr)
        return 2
    chosen = [mutant for mutant in mutants if not given.only or mutant.name in given.only]
    if given.list:
        _list(chosen)
        return 0
    if given.anew:
        given.kept.unlink(missing_ok=True)
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(3))  # servers and the copy go with us
    began = time.monotonic()
    try:
        findings = run(chosen, Kept(given.kept), _tell)
    except NotGreen as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if given.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    elif not given.only and given.table == TABLE:
        page.write(mutants, findings)
    _sum_up(findings, time.monotonic() - began)
    return 0 if all(finding.verdict is Verdict.KILLED for finding in findings) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m scripts.mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("--kept", type=Path, default=KEPT, metavar="FILE")
    parser.add_argument("--table", default=TABLE, metavar="NAME")
    for flag in ("--list", "--json", "--anew"):
        parser.add_argument(flag, action="store_true")
    return parser


def _list(mutants: Sequence[Mutant]) -> None:
    for mutant in mutants:
        print(f"{mutant.name}\n    {mutant.path}: {mutant.promise}\n    {' '.join(mutant.killers)}")


def _tell(finding: Finding) -> None:
    """While it runs; what is for programs goes to stdout."""
    print(f"{finding.verdict:9} {finding.seconds:5.1f} s  {finding.name}", file=sys.stderr, flush=True)
    if finding.verdict is not Verdict.KILLED:
        print(finding.output[-3000:], file=sys.stderr, flush=True)


def _sum_up(findings: Sequence[Finding], seconds: float) -> None:
    killed = sum(finding.verdict is Verdict.KILLED for finding in findings)
    print(f"{killed} of {len(findings)} mutants killed; this run took {seconds:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
