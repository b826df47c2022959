"""What a run came to, and the histories that show what is broken."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.torture import notes
from holdfast.torture.checker.doors import door_of
from holdfast.torture.checker.findings import Findings
from holdfast.torture.checker.life import Life
from holdfast.torture.checker.load import Counting
from holdfast.torture.moments import moment
from holdfast.torture.notes import Note
from holdfast.torture.shortest import MOST_LINES, Suspect, shown
from tests.torture.planted import EXPECTED, HTTP, Run
from tests.torture.plants import charge_a_calm_job, fail_a_calm_job
from tests.verify.lives import CRASH, JOB
from tests.verify.lives import Life as Lived

BEGAN = moment("2024-01-01T00:00:00.000000Z") or 0.0  # where the lives of the tests of verify begin
BRIEF = replace(EXPECTED, began_at=BEGAN, ended_at=BEGAN + 8)


# The load


def test_the_load_of_the_healthy_run(run: Run) -> None:
    load = run.judge().load
    assert load.jobs == sum(load.by_state.values()) == sum(load.by_task.values())
    assert load.acknowledged == len(run.jobs) - 1, "the undecodable one was inserted by hand"
    assert load.by_state["pruned"] == 1
    assert load.by_state["failed"] == load.by_task["poison"] + load.by_task["undecodable"] == 2
    assert load.by_door == {"contract": 2, "database": 23, "http": 2, "operator": 1, "redis": 1, "rq": 1}
    assert load.ticks == load.by_task["tick"] + 1, "one row says what was left out"
    assert load.leases_lost == 2
    assert load.refusals == 2
    assert load.executions == 30
    assert load.seconds == 600


def test_the_seconds_of_a_run_add_up_to_its_load(run: Run) -> None:
    judged = run.judge()
    timeline, load = judged.timeline, judged.load
    assert [second.at for second in timeline] == list(range(600))
    assert sum(second.accepted for second in timeline) == load.jobs
    assert sum(second.claimed for second in timeline) == load.attempts
    assert sum(second.lost for second in timeline) == load.leases_lost
    assert (timeline[-1].running, timeline[-1].waiting) == (0, load.by_state["pending"])


def counted(*lives: Lived) -> Counting:
    counting = Counting(BRIEF)
    for lived in lives:
        counting.feed(Life(JOB, "add", row=lived.row, events=lived.events))
    return counting


def test_running_and_waiting_are_those_at_the_end_of_each_second() -> None:
    """Event number n of a life is in second n."""
    timeline = counted(Lived("claimed", "retry_scheduled", "claimed", "succeeded")).timeline()
    assert [second.waiting for second in timeline] == [0, 1, 0, 1, 0, 0, 0, 0]
    assert [second.running for second in timeline] == [0, 0, 1, 0, 1, 0, 0, 0]
    assert [second.ended for second in timeline] == [0, 0, 0, 0, 0, 1, 0, 0]


def test_what_happened_after_the_run_is_in_its_last_second() -> None:
    lived = Lived("claimed", "succeeded")
    lived.events[-1] = lived.events[-1]._replace(at="2099-01-01T00:00:00.000000Z")
    timeline = counted(lived).timeline()
    assert (len(timeline), timeline[-1].ended) == (8, 1)


def test_a_lease_that_ran_out_for_the_last_time_is_lost_too() -> None:
    reaped = Lived("claimed").step("failed", CRASH, crash=True)
    crashed = Lived("claimed").step("failed", '{"signal": 9, "reason": "worker_lost"}', crash=True)
    assert counted(reaped).leases_lost == 1
    assert counted(crashed).leases_lost == 0


@pytest.mark.parametrize(
    ("worker", "door"),
    [
        ("worker-database-1-5f0c21aa", "database"),
        ("worker-http-12-5f0c21aa", "http"),
        ("worker-redis-1", "redis"),
        ("rq-1-5f0c21aa", "rq"),
        ("contract-1", "contract"),
        ("host-4711-5f0c21aa", "host"),
        ("Somebody", "other"),
        (None, "operator"),
    ],
)
def test_the_door_of_a_worker_is_in_its_name(worker: str | None, door: str) -> None:
    assert door_of(worker) == door


# The shortest history


def test_the_job_with_the_fewest_events_is_shown(run: Run) -> None:
    long, short, other = charge_a_calm_job(run), fail_a_calm_job(run), charge_a_calm_job(run)
    broken = run.broken()
    assert broken.job_id == short
    assert broken.detail.endswith("(and 2 more)")
    assert long != short != other


def test_events_and_notes_of_a_job_are_shown_together(run: Run) -> None:
    run.begin(run.enqueue("add"), HTTP)
    history = run.broken().history
    assert [line for line in history if "enqueued: ∅ → pending" in line]
    [claimed] = [line for line in history if "claimed: pending → running" in line]
    assert f"attempt 1  {HTTP}  lease " in claimed
    assert [line for line in history if f"note of {HTTP}: began  attempt 1" in line]
    assert [line for line in history if "note of client-1: acknowledged  task add, door database" in line]
    assert len(history) == 5


def line(at: float, note: Note) -> str:
    return json.dumps({"at": at, "by": "somebody", "kind": type(note).__name__, **asdict(note)}) + "\n"


def rendered(folder: Path, lived: Lived, *told: tuple[float, Note]) -> tuple[str, ...]:
    (folder / "somebody.1.notes.jsonl").write_text("".join(line(BEGAN + at, note) for at, note in told))

    def events(job_id: str) -> Sequence[Sequence[Any]]:
        return [event[1:] for event in lived.events if event.job_id == job_id]

    [broken] = shown([Suspect("lost", "told so", (JOB,))], events, folder, BEGAN)
    return broken.history


def test_they_are_in_order_of_time(tmp_path: Path) -> None:
    lived = Lived("claimed", "succeeded")
    lease = "5f0c21aa4d0e"
    assert rendered(
        tmp_path,
        lived,
        (0.5, notes.Intended([JOB, "another"], "add")),
        (2.25, notes.Began(JOB, 1, 17)),
        (2.25, notes.Ended(JOB, 1, 17)),
        (3.0, notes.Reported(JOB, 1, lease, "complete", True)),
        (9.0, notes.Began("another", 1, 17)),
    ) == (
        "+0.500 s  note of somebody: intended  task add, in a batch of 2",
        "+1.000 s  enqueued: ∅ → pending  attempt 0",
        "+2.000 s  claimed: pending → running  attempt 1  worker-1  lease lease-1",
        "+2.250 s  note of somebody: began  attempt 1, pid 17",
        "+2.250 s  note of somebody: ended  attempt 1, pid 17",
        "+3.000 s  succeeded: running → succeeded  attempt 1  worker-1  lease lease-1",
        "+3.000 s  note of somebody: reported  attempt 1, lease 5f0c21aa, verb complete, ok True",
    )


def test_of_a_long_history_the_beginning_and_the_end_are_shown(tmp_path: Path) -> None:
    lived = Lived()
    for _ in range(100):
        lived.step("claimed").step("released")
    history = rendered(tmp_path, lived)
    assert len(history) == MOST_LINES + 1
    assert "enqueued" in history[0]
    assert "81 lines" in history[MOST_LINES // 2]
    assert "released" in history[-1]


def test_of_several_jobs_each_line_names_its_own(run: Run) -> None:
    [source] = EXPECTED.sources
    broken = run.broken(replace(EXPECTED, sources=(replace(source, max_concurrent=1),)))
    fetches = [job_id for name, job_id in run.jobs.items() if name.startswith("fetch ")]
    assert {each[:8] for each in broken.history} == {job_id[-8:] for job_id in fetches[:2]}


def test_a_rule_is_shown_once_and_in_the_order_of_the_rules() -> None:
    found = Findings()
    for rule, length in (("phantom", 5), ("lost", 3), ("phantom", 2), ("gap", 9), ("phantom", 4)):
        found.add(rule, f"of {length}", f"job {length}", length=length)
    assert [(each.rule, each.detail) for each in found.suspects()] == [
        ("gap", "of 9"),
        ("lost", "of 3"),
        ("phantom", "of 2 (and 2 more)"),
    ]
