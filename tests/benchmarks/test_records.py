"""What the records of jobs say about a run: nothing may be lost or doubled without the benchmark saying so."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.records import RECORD, Start, Verdict, count, judge, latency, read, restarts


def write(path: Path, *starts: Start, rest: bytes = b"") -> Path:
    path.write_bytes(b"".join(RECORD.pack(start.number, start.at) for start in starts) + rest)
    return path


def test_starts_are_read_in_the_order_they_were_appended(tmp_path: Path) -> None:
    starts = [Start(1, 0.5), Start(0, 0.25)]
    path = write(tmp_path / "starts.bin", *starts)
    assert read(path) == starts
    assert count(path) == 2


def test_a_record_that_a_killed_process_left_half_written_is_no_record(tmp_path: Path) -> None:
    path = write(tmp_path / "starts.bin", Start(1, 0.5), rest=b"half")
    assert read(path) == [Start(1, 0.5)]
    assert count(path) == 1


def test_without_a_file_nothing_ran(tmp_path: Path) -> None:
    assert read(tmp_path / "none") == []
    assert count(tmp_path / "none") == 0


def test_every_job_once_is_neither_lost_nor_doubled() -> None:
    verdict = judge([Start(2, 0.0), Start(0, 0.1), Start(1, 0.2)], range(3))
    assert verdict == Verdict(lost=0, doubled=0)
    assert verdict.once


def test_a_job_that_ran_twice_does_not_make_up_for_one_that_never_ran() -> None:
    verdict = judge([Start(0, 0.0), Start(0, 0.1), Start(2, 0.2)], range(3))
    assert verdict == Verdict(lost=1, doubled=1)
    assert not verdict.once


def test_a_job_that_nobody_enqueued_counts_as_doubled() -> None:
    assert judge([Start(0, 0.0), Start(7, 0.1)], range(1)) == Verdict(lost=0, doubled=1)


def test_latency_is_from_the_enqueue_to_the_first_start() -> None:
    began = [10.0, 20.0, 30.0]
    found = latency([Start(2, 30.5), Start(0, 10.25), Start(1, 20.125), Start(0, 90.0)], began)
    assert found is not None
    assert (found.count, found.p50, found.p99, found.most) == (3, 250.0, 500.0, 500.0)


def test_a_job_that_never_ran_has_no_latency() -> None:
    found = latency([Start(1, 20.5)], [10.0, 20.0])
    assert found is not None
    assert found.count == 1
    assert latency([], [10.0]) is None


def test_the_99th_percentile_leaves_out_one_in_a_hundred() -> None:
    waits = [Start(number, 0.001 * number) for number in range(200)]
    found = latency(waits, [0.0] * 200)
    assert found is not None
    assert round(found.p50) == 100
    assert round(found.p99) == 198
    assert round(found.most) == 199


def test_only_jobs_that_had_begun_are_waited_for_after_a_kill() -> None:
    starts = [Start(0, 1.0), Start(1, 1.1), Start(2, 7.0), Start(0, 9.0), Start(0, 12.0)]
    assert restarts(starts, killed_at=5.0) == ({0, 1}, {0: 4.0})
