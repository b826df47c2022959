"""`python -m benchmarks cost`, at its smallest."""

from __future__ import annotations

import pytest

from benchmarks.cost.running import BASELINE, Costs, render, run

SMALLEST = ["--rounds", "1", "--scale", "0.001"]


def costs(enqueue: float, drain: float) -> Costs:
    return {("single enqueue", "client"): enqueue, ("drain", "supervisor"): drain}


def test_ratio_is_median_of_neighbours_and_total_adds_enqueue_and_drain() -> None:
    rounds = [
        {"this": costs(100e-6, 20e-6), "old": costs(100e-6, 40e-6)},
        {"this": costs(300e-6, 20e-6), "old": costs(300e-6, 20e-6)},  # the machine is slower: this says nothing
        {"this": costs(100e-6, 30e-6), "old": costs(100e-6, 20e-6)},
    ]
    assert render(rounds, "old").splitlines() == [
        "| step | process | us | us, old | ratio | range |",
        "|---|---|---|---|---|---|",
        "| single enqueue | client | 100.0 | 100.0 | 1.000 | 1.00 to 1.00 |",
        "| drain | supervisor | 20.0 | 20.0 | 1.000 | 0.50 to 1.50 |",
        "| total: single enqueue + drain | all | 130.0 | 140.0 | 1.000 | 0.86 to 1.08 |",
    ]


def test_unknown_revision_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        run(["--against", "no-such-revision", "--database", "sqlite"])
    assert "error: --against no-such-revision: " in str(raised.value)
    assert capsys.readouterr().out == ""


def test_every_step_and_process_has_a_row_on_sqlite(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*SMALLEST, "--database", "sqlite"]) == 0
    rows = [line.split("|")[1:4] for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert [(step.strip(), process.strip()) for step, process, _ in rows] == [
        ("step", "process"),
        ("single enqueue", "client"),
        ("bulk enqueue", "client"),
        ("claim and settle", "client"),
        ("worker start", "supervisor"),
        ("worker start", "runners"),
        ("pickup", "client"),
        ("pickup", "supervisor"),
        ("pickup", "runners"),
        ("drain", "supervisor"),
        ("drain", "runners"),
        ("command", "client"),
        ("total: single enqueue + drain", "all"),
    ]
    assert all(float(figure.replace(",", "")) > 0 for _, _, figure in rows[1:])


@pytest.mark.long
def test_both_databases_are_measured_beside_the_baseline(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*SMALLEST, "--against", BASELINE]) == 0
    printed = capsys.readouterr().out
    assert "### CPU time per job, sqlite" in printed
    assert "### CPU time per job, postgres" in printed
    assert printed.count("| drain | server |") == 1
    assert printed.count("| us, cost-baseline | ratio |") == 2
