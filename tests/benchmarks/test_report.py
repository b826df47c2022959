"""The report of a run, from a small one that is written out here."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.peers import results
from benchmarks.peers.bars import Chart, Row, bar_length, svg
from benchmarks.peers.environments import reason, without_places
from benchmarks.peers.report import plots, render
from benchmarks.peers.results import Failure, Results, Sample, load
from benchmarks.peers.servers import statements


def drain(variant: str, at: float, rate: float, lost: int = 0, doubled: int = 0) -> Sample:
    values = {"rate": rate, "lost": lost, "doubled": doubled, "foreign_cores": 0.1}
    return Sample(variant, results.DRAIN_ONE, at, values)


@pytest.fixture
def run() -> Results:
    return Results(
        began="2026-11-17 05:00 UTC",
        machine={"cores": "2"},
        versions={"pgqueuer": {"Python": "3.11.7", "pgqueuer": "1.6.0"}},
        concurrency={"pgqueuer": 200},
        samples=[
            drain("pgqueuer", 0, 10_000.0),
            drain("holdfast-postgres", 1, 12_000.0),
            drain("pgqueuer", 2, 10_000.0),
            drain("rq", 3, 300.0, lost=1, doubled=2),
            Sample(results.RAW_LOOP, results.DRAIN_ONE, 4, {"rate": 16_000.0, "foreign_cores": 0.9}),
            Sample("holdfast-postgres", results.LATENCY, 5, {"p50": 2.0, "p99": 20.0, "lost": 0, "doubled": 0}),
            Sample("rq", results.RECOVERY_WORKER, 6, {"seconds": None, "limit": 120.0, "cut": 1, "missing": 1}),
            Sample("holdfast-postgres", results.RECOVERY_WORKER, 7, {"seconds": 61.5, "limit": 120.0}),
        ],
        failures=[Failure("oban", "environment", "not installable here: needs Python 3.12")],
    )


def line(text: str, start: str, section: str = "What was promised") -> str:
    """The row of a table that begins so."""
    part = text.partition(f"### {section}")[2].partition("###")[0]
    [found] = [line for line in part.splitlines() if line.startswith(f"| {start} |")]
    return found


def test_a_run_is_read_back_as_it_was_saved(run: Results, tmp_path: Path) -> None:
    run.save(tmp_path / "run.json")
    assert load(tmp_path / "run.json") == run


def test_the_fastest_comes_first_and_ours_stand_out(run: Results) -> None:
    text = render(run)
    assert text.index("| **holdfast-postgres** |") < text.index("| pgqueuer |") < text.index("| rq |")


def test_ratios_stand_beside_rates(run: Results) -> None:
    assert "| 12,000 | 1.20 |" in line(render(run), "**holdfast-postgres**", "Speed")
    assert "| 300 | 0.03 |" in line(render(run), "rq", "Speed")


def test_lost_and_doubled_jobs_are_told(run: Results) -> None:
    assert line(render(run), "rq", "Speed").endswith("| 1 / 2 |")


def test_promises_say_whether_they_are_kept(run: Results) -> None:
    text = render(run)
    assert line(text, "Drain, 1 worker: 1.1 times pgqueuer (goal)").endswith("| 1.20 | yes |")
    assert line(text, "Pickup latency, p99: under 10 ms").endswith("| 20.00 ms | **no** |")
    assert line(text, "Bulk enqueue: 1.5 times pgqueuer").endswith("| not measured | \N{EN DASH} |")


def test_who_never_came_back_is_not_given_a_time(run: Results) -> None:
    assert "not within 120" in line(render(run), "rq", "Rest")
    assert "61.5" in line(render(run), "**holdfast-postgres**", "Rest")


def test_a_peer_that_could_not_run_has_its_reason(run: Results) -> None:
    assert "- oban: not installable here: needs Python 3.12" in render(run)


def test_a_drain_that_the_store_never_showed_as_done_has_no_rate(run: Results) -> None:
    values = {"rate": None, "lost": 2, "doubled": 0, "problem": "the store showed 8 of 10 as done"}
    run.samples.append(Sample("saq-redis", results.DRAIN_ONE, 8, values))
    assert "- saq-redis: drain-1: the store showed 8 of 10 as done" in render(run)
    assert line(render(run), "saq-redis", "Speed").endswith("| 2 / 0 |")


def test_disturbed_measurements_are_counted(run: Results) -> None:
    assert "8 measurements; during 1 of 5 others used more than 0.25 cores" in render(run)


def test_plots_are_svg_with_what_was_measured(run: Results) -> None:
    drawn = plots(run)
    assert set(drawn) == {"peers-drain.svg", "peers-latency.svg"}
    labels = [element.text for element in ElementTree.fromstring(drawn["peers-drain.svg"]).iter() if element.text]
    assert [name for name in labels if name in ("holdfast-postgres", "pgqueuer", "rq", "oban")] == [
        "holdfast-postgres",
        "pgqueuer",
        "rq",
    ]
    assert "12,000" in labels


def test_a_plot_can_be_read_on_dark_and_on_light_pages() -> None:
    assert "prefers-color-scheme: dark" in svg(Chart("a & b", ("one",), [Row("x", (1.0,))]))


def test_the_best_bar_is_on_top() -> None:
    rows = [Row("slow", (9.0,)), Row("fast", (1.0,)), Row("none", (None,))]
    ascending = svg(Chart("waits", ("one",), rows, ascending=True))
    assert ascending.index("fast") < ascending.index("slow")
    assert "none<" not in ascending


def test_bars_grow_with_their_values() -> None:
    known = [1.0, 10.0, 100.0]
    for logarithmic in (False, True):
        lengths = [bar_length(value, known, logarithmic=logarithmic) for value in known]
        assert lengths == sorted(lengths)
        assert lengths[0] > 0
    assert bar_length(5.0, [5.0], logarithmic=True) > 0


def test_statements_are_counted_by_database_and_frames_are_not() -> None:
    log = (
        b"ours LOG:  statement: BEGIN\n"
        b"ours LOG:  execute s1: SELECT 1\n"
        b"theirs LOG:  execute <unnamed>: SELECT 2\n"
        b"ours DETAIL:  parameters: $1 = '1'\n"
        b"ours LOG:  statement: LISTEN jobs\n"
        b"ours LOG:  statement: COMMIT\n"
    )
    assert statements(log, b"ours") == 2
    assert statements(log, b"theirs") == 1


def test_an_installers_error_does_not_say_where_packages_come_from() -> None:
    told = reason("WARNING: x\nERROR: No distribution for nonesuch at https://packages.example/simple/nonesuch\n")
    assert told == "No distribution for nonesuch at …"


def test_a_peers_last_words_do_not_tell_of_this_machine() -> None:
    assert without_places('File "/home/somebody/bench/peer.py", line 3: no 1/2 left') == "File …, line 3: no 1/2 left"
