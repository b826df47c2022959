"""The generated parts of docs/torture.md and docs/reliability.md: faults, rules, and the figures of the last long runs.

The runs are kept in docs/runs as `holdfast torture --json` printed them, each beside the page that it wrote.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import median
from typing import Any

from holdfast.torture.checker.rules import OWN_SENTENCES
from holdfast.torture.faults import KINDS

RUNS = Path(__file__).resolve().parent.parent / "docs" / "runs"


def torture(page: str) -> str:
    faults = "\n".join(f"| `{kind.name}` | {kind.sentence} |" for kind in KINDS.values())
    rules = "\n".join(f"| `{rule}` | {sentence} |" for rule, sentence in OWN_SENTENCES.items())
    page = _replaced(page, "faults", f"| kind | what is done |\n|---|---|\n{faults}")
    return _replaced(page, "rules", f"| rule | what must hold |\n|---|---|\n{rules}")


def reliability(page: str) -> str:
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RUNS.glob("torture-*.json"))]
    return _replaced(page, "runs", "\n".join(_run_table(runs))) if runs else page


def _replaced(page: str, name: str, table: str) -> str:
    place = re.search(rf"<!-- {name} -->\n(.*?)<!-- end of {name} -->", page, re.DOTALL)
    assert place is not None, f"the page has no place for {name}"
    return f"{page[: place.start(1)]}\n{table}\n\n{page[place.end(1) :]}"


def _run_table(runs: list[dict[str, Any]]) -> list[str]:
    rows = [
        ("store", [f"{run['dialect']} {run['versions']['database']}" for run in runs]),
        ("command", [f"`{run['command']}`" for run in runs]),
        ("when", [run["began_at"] for run in runs]),
        ("faults lasted", [f"{run['seconds'] / 60:.1f} min" for run in runs]),
        ("faults", [f"{len(run['strikes'])}, of {len({s['kind'] for s in run['strikes']})} kinds" for run in runs]),
        ("jobs", [f"{run['load']['jobs']:,}" for run in runs]),
        ("events in the audit log", [f"{run['load']['events']:,}" for run in runs]),
        ("acknowledged to a client", [f"{run['load']['acknowledged']:,}" for run in runs]),
        ("attempts", [f"{run['load']['attempts']:,}" for run in runs]),
        ("leases lost", [f"{run['load']['leases_lost']:,}" for run in runs]),
        ("reports refused", [f"{run['load']['refusals']:,}" for run in runs]),
        ("ticks of schedules", [f"{run['load']['ticks']:,}" for run in runs]),
        ("by door", [_shares(run["load"]["by_door"]) for run in runs]),
        ("recovered: how many, median, longest", [_recovery(run["strikes"]) for run in runs]),
        *(
            (f"of those that had {bound:g} s", [_recovery(_bound(run, bound)) for run in runs])
            for bound in _bounds(runs)
        ),
        ("everything had ended, after the last fault", [_seconds(run["drained_seconds"]) for run in runs]),
        ("lost, doubled, overlapping", ["0, 0, 0" if not run["broken"] else _broken(run) for run in runs]),
        ("violations of any rule", [str(len(run["broken"])) for run in runs]),
    ]
    head = ["|  | " + " | ".join(f"run {number}" for number in range(1, len(runs) + 1)) + " |"]
    head.append("|---|" + "---|" * len(runs))
    told = (f"run {number}: how often, recovered (median, longest)" for number in range(1, len(runs) + 1))
    kinds = [
        "",
        "| fault | " + " | ".join(told) + " |",
        "|---|" + "---|" * len(runs),
        *(f"| `{name}` | " + " | ".join(_kind(run, name) for run in runs) + " |" for name in KINDS),
    ]
    return [*head, *(f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows), *kinds]


def _kind(run: dict[str, Any], name: str) -> str:
    strikes = [strike for strike in run["strikes"] if strike["kind"] == name]
    if not strikes:
        return f"not here: {run['left_out'].get(name, 'not asked for')}"
    found = _recovered(strikes)
    return f"{len(strikes)}, {median(found):.1f} s, {max(found):.1f} s" if found else f"{len(strikes)}"


def _bounds(runs: list[dict[str, Any]]) -> list[float]:
    """Less for a fault that came alone."""
    return sorted(
        {bound for run in runs for strike in run["strikes"] if (bound := strike["bound_seconds"]) is not None}
    )


def _bound(run: dict[str, Any], bound: float) -> list[dict[str, Any]]:
    return [strike for strike in run["strikes"] if strike["bound_seconds"] == bound]


def _recovered(strikes: list[dict[str, Any]]) -> list[float]:
    return [seconds for strike in strikes if (seconds := strike["recovered_seconds"]) is not None]


def _recovery(strikes: list[dict[str, Any]]) -> str:
    found = _recovered(strikes)
    return f"{len(found)}: {median(found):.1f} s, {max(found):.1f} s" if found else "nothing to recover"


def _shares(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items(), key=lambda item: -item[1]))


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.1f} s"


def _broken(run: dict[str, Any]) -> str:
    return ", ".join(sorted({broken["rule"] for broken in run["broken"]}))
