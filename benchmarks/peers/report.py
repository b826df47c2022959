"""A run as markdown, and its plots."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers import results
from benchmarks.peers.bars import Chart, Row, svg
from benchmarks.peers.environments import without_places
from benchmarks.peers.foreign import LIMIT_CORES
from benchmarks.peers.promises import PROMISES, median_of
from benchmarks.peers.ratios import of_neighbours
from benchmarks.peers.results import Results
from benchmarks.peers.variants import REFERENCE, VARIANTS
from benchmarks.tables import markdown

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
NOTHING = "\N{EN DASH}"
STORES = {"postgres": "Postgres", "redis": "Redis", "sqlite": "SQLite"}
VERDICTS = {True: "yes", False: "**no**", None: NOTHING}


def render(found: Results) -> str:
    parts = [
        _machine(found),
        "### What was promised\n\n" + _promises(found),
        "### Speed\n\n" + _speed(found),
        "### Rest, memory, recovery\n\n" + _rest(found),
        "### Settings\n\n" + _settings(found),
    ]
    if failures := _failures(found):
        parts.append("### What could not be measured\n\n" + failures)
    return "\n\n".join(parts) + "\n"


def plots(found: Results) -> dict[str, str]:
    """SVG by file name; what was not measured is left out."""
    names = _measured(found)
    drains = [_bar(found, name, (results.DRAIN_ONE, "rate"), (results.DRAIN_TWO, "rate")) for name in names]
    waits = [_bar(found, name, (results.LATENCY, "p50"), (results.LATENCY, "p99")) for name in names]
    charts = {
        "peers-drain.svg": Chart(
            "No-op jobs a second, until the store shows them done", ("1 worker", "2 workers"), drains
        ),
        "peers-latency.svg": Chart(
            "From enqueue to start, ms, worker idle",
            ("median", "99th percentile"),
            waits,
            logarithmic=True,
            ascending=True,
        ),
    }
    return {name: svg(chart) for name, chart in charts.items() if any(row.values[0] for row in chart.rows)}


def _bar(found: Results, name: str, *wanted: tuple[str, str]) -> Row:
    values = tuple(median_of(found, name, measure, value) for measure, value in wanted)
    return Row(name, values, ours=VARIANTS[name].ours)


def _measured(found: Results) -> list[str]:
    """By drain rate, the fastest first; without one, last."""
    names = [name for name in found.variants() if name in VARIANTS]
    return sorted(names, key=lambda name: -(median_of(found, name, results.DRAIN_ONE, "rate") or 0.0))


def _machine(found: Results) -> str:
    lines = [f"- {name}: {value}" for name, value in found.machine.items()]
    cores = [sample.values.get("foreign_cores") for sample in found.samples]
    known = [value for value in cores if value is not None]
    disturbed = sum(1 for value in known if value > LIMIT_CORES)
    lines.append(
        f"- begun {found.began}; {len(found.samples)} measurements; during {disturbed} of {len(known)} others used "
        f"more than {LIMIT_CORES} cores: read ratios, not absolutes"
    )
    return "\n".join(lines)


def _promises(found: Results) -> str:
    shown = [promise.shown(found) for promise in PROMISES]
    return markdown(["promise", "found", "kept"], [[one.promise, one.found, VERDICTS[one.kept]] for one in shown])


def _speed(found: Results) -> str:
    headings = [
        "",
        "store",
        "enqueue one by one /s",
        "bulk /s",
        "drain, 1 worker /s",
        "of pgqueuer",
        "2 workers /s",
        "of pgqueuer",
        "pickup p50 / p99 ms",
        "lost / doubled",
    ]
    rows = [[_name(name), STORES[VARIANTS[name].store], *_speeds(found, name)] for name in _measured(found)]
    beside = [
        (results.RAW_LOOP, "our raw claim + settle loop", results.DRAIN_ONE),
        (results.BARE_INSERT, "our insert through bare psycopg", results.ENQUEUE_ONE),
    ]
    for name, words, measure in beside:
        if found.of(name, measure):
            rate = _rate(found, name, measure)
            row = [rate if measure == column else NOTHING for column in (results.ENQUEUE_ONE, "", results.DRAIN_ONE)]
            rows.append([f"*{words}*", STORES["postgres"], *row, *[NOTHING] * 5])
    return markdown(headings, rows)


def _speeds(found: Results, name: str) -> list[str]:
    waits = [median_of(found, name, results.LATENCY, value) for value in ("p50", "p99")]
    return [
        _rate(found, name, results.ENQUEUE_ONE),
        _rate(found, name, results.ENQUEUE_BULK),
        _rate(found, name, results.DRAIN_ONE),
        _ratio(found, name, results.DRAIN_ONE),
        _rate(found, name, results.DRAIN_TWO),
        _ratio(found, name, results.DRAIN_TWO),
        " / ".join(NOTHING if wait is None else f"{wait:.1f}" for wait in waits),
        _once(found, name),
    ]


def _once(found: Results, name: str) -> str:
    judged = [sample.values for sample in found.samples if sample.variant == name and "lost" in sample.values]
    if not judged:
        return NOTHING
    lost, doubled = (sum(int(values[kind]) for values in judged) for kind in ("lost", "doubled"))
    return f"{lost} / {doubled}"


def _rest(found: Results) -> str:
    headings = [
        "",
        "idle queries/s",
        "idle CPU %",
        "RSS MiB",
        "PSS MiB",
        "processes",
        "worker killed, s",
        "runner killed, s",
    ]
    rows = []
    for name in _measured(found):
        idle = [_figure(median_of(found, name, results.IDLE, value)) for value in ("queries", "cpu", "rss", "pss")]
        processes = median_of(found, name, results.IDLE, "processes")
        back = [_recovered(found, name, measure) for measure in (results.RECOVERY_WORKER, results.RECOVERY_RUNNER)]
        rows.append([_name(name), *idle, NOTHING if processes is None else f"{processes:.0f}", *back])
    words = (
        "Queries are statements on Postgres (those that only frame a transaction left out) and commands on Redis. "
        "Recovery is from SIGKILL until the last of the jobs that it cut began again, at the peer's defaults; a runner "
        "is the process that a job ran in, where that is not the worker. Recoveries of workers were taken side by side."
    )
    return markdown(headings, rows) + "\n\n" + words


def _recovered(found: Results, name: str, measure: str) -> str:
    taken = found.of(name, measure)
    if not taken:
        return NOTHING
    missing = [sample for sample in taken if sample.values["seconds"] is None]
    if missing:
        return f"not within {missing[0].values['limit']:.0f}"
    return _figure(median_of(found, name, measure, "seconds"))


def _settings(found: Results) -> str:
    rows = []
    for name in _measured(found):
        versions = dict(found.versions.get(name, {}))
        python = versions.pop("Python", "")
        packages = ", ".join(f"{package} {version}" for package, version in versions.items())
        concurrency = found.concurrency.get(name) or NOTHING
        variant = VARIANTS[name]
        responsive = variant.responsive or NOTHING
        rows.append(
            [_name(name), packages, python, f"{concurrency} ({responsive})", _tried(found, name), variant.setting]
        )
    headings = ["", "versions", "Python", "concurrency (for latency, idle, recovery)", "tried, jobs/s", "setting"]
    return markdown(headings, rows)


def _tried(found: Results, name: str) -> str:
    """The concurrencies that were tried, and what each drained."""
    tried = [sample.values for sample in found.of(name, results.TUNE)]
    return ", ".join(f"{values['concurrency']}: {_figure(values.get('rate'))}" for values in tried) or NOTHING


def _failures(found: Results) -> str:
    told = [(failure.variant, without_places(failure.reason)) for failure in found.failures]
    told += [
        (sample.variant, f"{sample.measure}: {sample.values['problem']}")
        for sample in found.samples
        if "problem" in sample.values
    ]
    return "\n".join(f"- {name}: {reason}" for name, reason in told)


def _name(name: str) -> str:
    return f"**{name}**" if VARIANTS[name].ours else name


def _rate(found: Results, name: str, measure: str) -> str:
    return _figure(median_of(found, name, measure, "rate"))


def _ratio(found: Results, name: str, measure: str) -> str:
    if name == REFERENCE:
        return "1"
    ratio = of_neighbours(found.of(name, measure), found.of(REFERENCE, measure), "rate")
    return NOTHING if ratio is None else f"{ratio.median:.2f}"


def _figure(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
