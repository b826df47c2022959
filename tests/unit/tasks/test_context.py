"""The context: cancel, progress, logs and their caps, finishing in the user's transaction."""

import threading
from datetime import UTC, datetime
from typing import Any

import pytest

import holdfast
from holdfast.domain.errors import ConfigurationError, InvalidInput
from holdfast.domain.logs import LogLine, Stream
from holdfast.domain.outcome import Report, Succeeded
from holdfast.tasks.context import Context, JobInfo, entered
from holdfast.tasks.log_budget import MAX_LINE, LogBudget

JOB = JobInfo(id="01890a5d-ac96-774b-bcce-b302099a8057", task="run", attempt=3)


class Recorder:
    def __init__(self) -> None:
        self.said: list[Any] = []

    def progress(self, value: dict[str, Any]) -> None:
        self.said.append(value)

    def log(self, line: LogLine) -> None:
        self.said.append(line)

    def completing(self) -> None:
        self.said.append("completing")


@pytest.fixture
def channel() -> Recorder:
    return Recorder()


@pytest.fixture
def context(channel: Recorder) -> Context:
    return Context(JOB, channel, "secret")


def test_progress_says_what_was_given(context: Context, channel: Recorder) -> None:
    context.progress(1)
    context.progress(2.5, 10, note="half")
    assert channel.said == [{"done": 1}, {"done": 2.5, "total": 10, "note": "half"}]
    wrong: list[Any] = ["1", None, True, float("nan")]
    for value in wrong:
        with pytest.raises(InvalidInput, match="done: "):
            context.progress(value)
    with pytest.raises(InvalidInput, match="total: "):
        context.progress(1, float("inf"))


@pytest.mark.parametrize(
    ("reason", "lease_lost"), [("cancel_requested", False), ("timeout", False), ("lease_lost", True)]
)
def test_a_job_is_told_to_stop(context: Context, reason: str, lease_lost: bool) -> None:
    assert (context.cancelled, context.lease_lost, context.cancel_reason) == (False, False, None)
    assert context.wait_cancelled(0) is False

    threading.Timer(0.01, context.request_cancel, [reason]).start()

    assert context.wait_cancelled("10m") is True
    assert (context.cancelled, context.lease_lost, context.cancel_reason) == (True, lease_lost, reason)


def test_a_lease_that_is_lost_after_a_cancel_is_seen(context: Context) -> None:
    context.request_cancel("cancel_requested")
    context.request_cancel("lease_lost")
    assert (context.lease_lost, context.cancel_reason) == (True, "cancel_requested")


def test_log_lines_are_numbered_and_never_fail_the_job(context: Context, channel: Recorder) -> None:
    class Unprintable:
        def __str__(self) -> str:
            raise RuntimeError

    context.log("started", rows=5)
    context.log("nul\x00 and \ud800", level="error", when=datetime(2030, 1, 1, tzinfo=UTC), bad=Unprintable())

    first, second = channel.said
    assert (first.job_id, first.attempt, first.number, first.stream) == (JOB.id, 3, 1, Stream.LOG)
    assert (first.message, first.level, first.fields) == ("started", "info", {"rows": 5})
    assert (second.number, second.message, second.level) == (2, "nul\ufffd and ?", "error")
    assert second.fields == {"when": "2030-01-01 00:00:00+00:00", "bad": "<Unprintable that cannot be printed>"}


def test_after_the_last_line_a_marker_and_then_nothing() -> None:
    budget = LogBudget(JOB.id, 3, max_lines=2)
    lines = [line for number in range(5) for line in budget.lines(Stream.STDOUT, str(number))]

    assert [line.message for line in lines[:2]] == ["0", "1"]
    assert "at most 2 lines" in lines[2].message
    assert (len(lines), lines[2].number, lines[2].fields) == (3, 3, {"truncated": True})
    assert budget.spent


def test_text_is_cut_within_its_bytes_and_between_characters() -> None:
    budget = LogBudget(JOB.id, 3, max_bytes=10)
    lines = budget.lines(Stream.STDERR, "12345") + budget.lines(Stream.STDERR, "äöüß") + budget.lines(Stream.LOG, "x")

    assert [line.message for line in lines[:2]] == ["12345", "äö"]
    assert "at most 10 bytes" in lines[2].message
    assert len(lines) == 3


def test_fields_count_as_text() -> None:
    budget = LogBudget(JOB.id, 3, max_bytes=100)
    (marker,) = budget.lines(Stream.LOG, "short", fields={"long": "x" * 200})
    assert marker.fields == {"truncated": True}


def test_the_default_caps(context: Context, channel: Recorder) -> None:
    for _ in range(10_002):
        context.log("x")
    assert len(channel.said) == 10_001


def test_a_very_long_line_is_cut_and_says_so() -> None:
    budget = LogBudget(JOB.id, 1)
    [line] = budget.lines(Stream.LOG, "x" * 2_000_000)
    assert line.message.startswith("x" * MAX_LINE)
    assert line.message.endswith(f" … [{2_000_000 - MAX_LINE:,} more characters of this line cut]")
    assert len(line.message) <= 64 * 1024, "the store would cut it again"


def test_many_threads_share_one_budget() -> None:
    budget = LogBudget(JOB.id, 1, max_lines=500)
    lines: list[LogLine] = []

    def speak() -> None:
        for _ in range(200):
            lines.extend(budget.lines(Stream.LOG, "x"))

    threads = [threading.Thread(target=speak) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(line.number for line in lines) == list(range(1, 502))
    assert sum("cut here" in line.message for line in lines) == 1


def test_complete_in_reports_under_the_token_of_this_attempt(channel: Recorder) -> None:
    def complete(connection: Any, report: Report) -> None:
        channel.said.append((connection, report))

    context = Context(JOB, channel, "secret", complete=complete)
    context.complete_in("connection", result={"when": datetime(2030, 1, 1, tzinfo=UTC)})

    report = Report(JOB.id, 3, "secret", Succeeded({"when": "2030-01-01T00:00:00Z"}))
    assert channel.said == ["completing", ("connection", report)]
    assert context.completed_in


def test_complete_in_refuses_a_bad_result_before_anything_is_locked(context: Context, channel: Recorder) -> None:
    with pytest.raises(InvalidInput, match="result: "):
        context.complete_in("connection", result=object())
    assert channel.said == []
    assert not context.completed_in


def test_complete_in_needs_a_worker(context: Context) -> None:
    with pytest.raises(ConfigurationError, match="inside a job that a worker runs"):
        context.complete_in("connection")
    assert not context.completed_in


def test_the_current_context_is_there_only_inside_a_job(context: Context) -> None:
    with pytest.raises(ConfigurationError, match="no current job"):
        holdfast.current()
    with entered(context):
        assert holdfast.current() is context
    with pytest.raises(ConfigurationError):
        holdfast.current()
