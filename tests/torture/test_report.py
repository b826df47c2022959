"""What a run says in the terminal and to programs."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from holdfast.cli.torture_report import print_report
from holdfast.torture import report
from holdfast.torture.report import document
from holdfast.torture.results import Broken, Strike
from tests.torture.sample_result import FAULTS, LEFT_OUT, RULES, empty_result, sample_result


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> pytest.CaptureFixture[str]:
    return capsys


def test_the_terminal_names_every_fault_every_rule_and_what_was_left_out(printed: pytest.CaptureFixture[str]) -> None:
    print_report(sample_result())
    said = printed.readouterr().out
    for name in (*FAULTS, *LEFT_OUT, *LEFT_OUT.values(), *RULES):
        assert name in said


def test_the_terminal_names_every_door_state_and_task_of_the_load(printed: pytest.CaptureFixture[str]) -> None:
    result = sample_result()
    print_report(result)
    said = printed.readouterr().out
    for counts in (result.load.by_door, result.load.by_state, result.load.by_task):
        for name, count in counts.items():
            assert f"{name} {count:,} (" in said
    assert f"{result.load.jobs:,}" in said


def test_a_run_without_a_violation_ends_with_the_verdict_and_the_command(printed: pytest.CaptureFixture[str]) -> None:
    result = sample_result(seed=11)
    print_report(result)
    verdict, _, again = printed.readouterr().out.splitlines()[-3:]
    assert verdict.startswith(f"No violation: {result.load.jobs:,} jobs and {result.load.events:,} events through 300 ")
    assert again == f"Seed 11. To run it again: {result.command}"


def test_a_run_with_violations_tells_the_shortest_history_of_each_rule_and_the_seed(
    printed: pytest.CaptureFixture[str],
) -> None:
    result = sample_result(seed=11, broken=True)
    print_report(result)
    said = printed.readouterr().out
    for rule in {broken.rule for broken in result.broken}:
        assert f"VIOLATED {rule}" in said
    shortest = result.broken[0]
    told = said.split(f"VIOLATED {shortest.rule}")[1].split("VIOLATED")[0]
    assert shortest.detail in told
    assert len([line for line in told.splitlines() if "audit log" in line]) == 5
    assert "and 1 other case like it" in told
    assert "No violation" not in said
    assert said.splitlines()[-3].startswith("4 violations of 3 rules in ")
    assert said.splitlines()[-1].startswith("Seed 11. To run it again: holdfast ")


def test_a_case_without_a_history_is_not_the_shortest_when_another_has_one() -> None:
    told, untold = Broken("r", "told", "b", ("one", "two")), Broken("r", "untold", "a")
    (found,) = report.violated(replace(empty_result(), broken=(untold, told)))
    assert (found.shortest, found.others, found.count) == (told, (untold,), 2)


def test_a_rule_that_only_a_violation_names_is_listed_first_and_does_not_hold() -> None:
    result = replace(empty_result(), broken=(Broken("new", "x"),), rules_checked={"old": 3})
    assert [(rule.name, rule.checked, rule.violations) for rule in report.rules(result)] == [
        ("new", 0, 1),
        ("old", 3, 0),
    ]


def test_a_rule_that_was_held_against_nothing_is_not_said_to_hold(printed: pytest.CaptureFixture[str]) -> None:
    print_report(replace(empty_result(), rules_checked={"untried": 0, "tried": 2}))
    said = printed.readouterr().out
    assert re.search(r"^not tried +0 +untried", said, re.MULTILINE)
    assert re.search(r"^holds +2 +tried", said, re.MULTILINE)


def test_a_kind_counts_what_came_late_and_what_was_never_seen_to_recover() -> None:
    times = ((1.0, 5.0), (2.0, 5.0), (6.0, 5.0), (None, 5.0), (None, None))
    strikes = tuple(Strike("kill", "w", at, at, "", took, bound) for at, (took, bound) in enumerate(times))
    result = replace(empty_result(), strikes=strikes)
    (kind,) = report.kinds(result)
    assert (kind.count, kind.middle, kind.longest, kind.bounds) == (5, 2.0, 6.0, (5.0,))
    assert (kind.late, kind.not_seen) == (1, 1)
    assert report.recovery(result) == (
        "All was well again after 3 faults, the longest in 6.0 s, 1 of them later than they must,"
        " after 1 nobody saw it."
    )


def test_what_came_late_is_said_aloud_in_the_terminal(printed: pytest.CaptureFixture[str]) -> None:
    strikes = (Strike("kill", "w", 1.0, 1.0, "", 9.0, 5.0), Strike("kill", "w", 1.0, 1.0, "", None, 5.0))
    print_report(replace(empty_result(), strikes=strikes))
    assert "1 LATE 1 NOT SEEN TO RECOVER" in printed.readouterr().out


def test_a_kind_that_was_left_out_is_listed_with_a_count_of_zero() -> None:
    kinds = report.kinds(sample_result())
    assert [(kind.name, kind.count, kind.left_out) for kind in kinds if not kind.count] == [
        ("disk-full", 0, LEFT_OUT["disk-full"])
    ]


def test_a_run_in_which_nothing_happened_can_be_printed(printed: pytest.CaptureFixture[str]) -> None:
    print_report(empty_result())
    said = printed.readouterr().out
    assert "No faults were injected." in said
    assert "No violation: 0 jobs and 0 events through no faults" in said
    assert "something was still left to do" in said


def test_what_would_steer_the_terminal_is_shown_and_not_obeyed(printed: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b[2J\nNo violation"
    broken = Broken(evil, evil, evil, (evil,))
    strikes = (Strike(evil, evil, 1.0, 1.0),)
    print_report(
        replace(
            empty_result(), command=evil, broken=(broken,), strikes=strikes, left_out={evil: evil}, rules_checked={}
        )
    )
    said = printed.readouterr().out
    assert "\x1b" not in said
    assert not any(line.startswith("No violation") for line in said.splitlines())


def test_the_document_is_json_and_has_the_faults_by_kind() -> None:
    result = sample_result(broken=True)
    found = json.loads(json.dumps(document(result)))
    assert (found["ok"], found["seed"], found["verdict"]) == (False, result.seed, report.verdict(result))
    assert len(found["broken"]) == 4
    assert len(found["strikes"]) == 300
    assert {fault["kind"] for fault in found["faults"]} == {*FAULTS, *LEFT_OUT}
    assert sum(fault["count"] for fault in found["faults"]) == 300


def test_the_timeline_is_in_the_document_when_it_is_asked_for() -> None:
    result = sample_result(seconds=60, strikes=20)
    assert not {"timeline", "lives"} & document(result).keys()
    found = json.loads(json.dumps(document(result, timeline=True)))
    assert (len(found["timeline"]), len(found["lives"])) == (len(result.timeline), len(result.lives))
