"""What `holdfast torture` prints when it is over. The verdict comes last, where the eye is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.cli import output
from holdfast.serve.dashboard.words import duration, percent
from holdfast.torture import report

if TYPE_CHECKING:
    from holdfast.torture.report import Kind, Rule, Violated
    from holdfast.torture.results import Result

LONGEST_HISTORY = 60  # lines


def print_report(result: Result) -> None:
    _print_load(result)
    _print_faults(result)
    _print_rules(result)
    _print_verdict(result)


def _print_load(result: Result) -> None:
    load = result.load
    rate = f"{report.jobs_per_second(result):,.0f} a second for {duration(load.seconds)}"
    output.facts(
        (
            ("jobs", f"{load.jobs:,} ({rate}), {load.acknowledged:,} of them acknowledged to a client"),
            ("events", f"{load.events:,}"),
            ("attempts", f"{load.attempts:,}, {load.executions:,} of them seen to begin by user code"),
            ("leases lost", f"{load.leases_lost:,}; {load.refusals:,} reports refused"),
            ("schedule ticks", f"{load.ticks:,}"),
            ("by state", _shares(load.by_state)),
            ("by door", _shares(load.by_door)),
            ("by task", _shares(load.by_task)),
        )
    )


def _shares(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,} ({percent(share)})" for name, count, share in report.shares(counts))


def _print_faults(result: Result) -> None:
    output.line("")
    found = [kind for kind in report.kinds(result) if kind.count]
    if found:
        headers = ("fault", "count", "p50", "max", "bound", "", "hit")
        output.table(headers, [tuple(_fault(kind)) for kind in found])
    else:
        output.line("No faults were injected.")
    for name, why in sorted(result.left_out.items()):
        output.line(f"left out: {output.one_line(name)}: {output.one_line(why)}", "dim")


def _fault(kind: Kind) -> Iterator[object]:
    yield output.one_line(kind.name)
    yield f"{kind.count:,}"
    yield from (duration(kind.middle), duration(kind.longest), report.bounds_in_words(kind))
    yield " ".join(_troubles(kind))
    yield output.one_line(report.targets_in_words(kind))


def _troubles(kind: Kind) -> Iterator[str]:
    if kind.late:
        yield f"{kind.late:,} LATE"
    if kind.not_seen:
        yield f"{kind.not_seen:,} NOT SEEN TO RECOVER"


def _print_rules(result: Result) -> None:
    output.line("")
    rows = [(_standing(rule), f"{rule.checked:,}", rule.name, rule.sentence) for rule in report.rules(result)]
    output.table(("", "checked", "rule", ""), rows)


def _standing(rule: Rule) -> str:
    if rule.violations:
        return f"{rule.violations:,} VIOLATED"
    return "holds" if rule.checked else "not tried"


def _print_verdict(result: Result) -> None:
    for found in report.violated(result):
        _print_violated(found)
    output.line("")
    output.line(report.verdict(result), "green" if result.ok else "red")
    output.line(f"{report.recovery(result)} {report.drained(result)}")
    output.line(f"Seed {result.seed}. To run it again: {output.one_line(result.command)}")


def _print_violated(found: Violated) -> None:
    case = found.shortest
    of = f" of job {output.one_line(case.job_id)}" if case.job_id else ""
    output.line("")
    output.line(f"VIOLATED {output.one_line(found.rule)}{of}: {output.one_line(case.detail)}", "red")
    if found.sentence:
        output.line(f"  the rule: {found.sentence}", "dim")
    for entry in case.history[:LONGEST_HISTORY]:
        output.line("  " + output.safe(entry).replace("\n", " "))  # its columns stay
    if len(case.history) > LONGEST_HISTORY:
        output.line(f"  and {len(case.history) - LONGEST_HISTORY:,} lines more")
    if found.others:
        output.line(f"  and {report.counted(len(found.others), 'other case')} like it", "dim")
