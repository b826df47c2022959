"""What figures mean, in words."""

import pytest

from holdfast.bench.report import Bound, Drain, Loop, Verdict
from holdfast.bench.timing import latency, quantile
from holdfast.bench.verdict import judge, parts

IDLE_MACHINE = Drain(processes=2, jobs=1_000, per_second=5_000.0, machine_busy=0.4)


def verdict(
    single: Loop, *, has_wire: bool = True, round_trip: float = 0.1, flush: float = 0.1, drain: Drain = IDLE_MACHINE
) -> Verdict:
    loops = (single, Loop(100, 20_000.0, 0.9))
    return judge(has_wire=has_wire, round_trip_ms=round_trip, flush_ms=flush, loops=loops, drain=drain, cores=2)


@pytest.mark.parametrize(
    ("round_trip", "flush", "cpu", "bound", "said"),
    [
        (4.0, 0.1, 0.1, "round_trip", "the way to the database and back"),
        (0.1, 4.0, 0.1, "flush", "waiting for the disk"),
        (0.1, 0.1, 0.9, "client_cpu", "computing in this process: more workers help"),
        (0.1, 0.1, 0.1, "database", "work of the database itself"),
    ],
)
def test_the_largest_part_of_a_job_is_what_bounds_it(
    round_trip: float, flush: float, cpu: float, bound: Bound, said: str
) -> None:
    found = verdict(Loop(1, 100.0, cpu), round_trip=round_trip, flush=flush)
    assert found.single == bound
    assert found.words[0].startswith("One job at a time takes 10 ms to claim and settle, ")
    assert said in found.words[0]


def test_the_parts_of_a_batch_are_all_of_it() -> None:
    found = parts(Loop(10, 1_000.0, 0.25), 1.0, 0.5)
    assert found == {"round_trip": 2.0, "flush": 1.0, "client_cpu": 2.5, "database": 4.5}


def test_batches_are_judged_apart_from_single_jobs() -> None:
    found = verdict(Loop(1, 100.0, 0.1))
    assert (found.single, found.batches) == ("database", "client_cpu")
    assert found.words[1].startswith("A batch of 100 takes 5 ms to claim and settle, 4.5 ms of it computing")


def test_an_embedded_database_has_no_way_to_go() -> None:
    found = verdict(Loop(1, 100.0, 0.5), has_wire=False, round_trip=4.0)
    assert found.single == "client_cpu"
    assert "which does the database's work too" in found.words[0]


def test_a_machine_without_a_free_core_bounds_the_worker() -> None:
    full = Drain(processes=2, jobs=1_000, per_second=12_000.0, machine_busy=0.97)
    found = verdict(Loop(1, 100.0, 0.5), drain=full)
    assert found.worker == "machine_cpu"
    assert found.words[2].endswith("with all of this machine busy (2 cores): more machines for workers help.")
    assert found.jobs_per_day == 1_036_800_000
    assert "1.0 billion jobs a day" in found.words[3]


def test_a_system_that_does_not_tell_how_busy_it_is_is_not_guessed_at() -> None:
    found = verdict(Loop(1, 100.0, 0.5), drain=Drain(1, 1_000, 50.0, None))
    assert found.words[2] == "A worker with 1 runner finished 50 jobs a second."
    assert "4.3 million jobs a day" in found.words[3]


def test_a_quantile_is_a_value_that_was_seen() -> None:
    assert [quantile([5.0, 1.0, 3.0], share) for share in (0.01, 0.5, 0.99)] == [1.0, 3.0, 5.0]
    assert quantile([7.0], 0.5) == 7.0
    found = latency([0.001] * 99 + [1.0])
    assert (found.p50, found.p99, found.count) == (1.0, 1.0, 100)
