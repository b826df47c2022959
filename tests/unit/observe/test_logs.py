"""What a worker writes: the right level, one sentence, the job's id and attempt, and never a secret."""

import io
import json
import logging
import sys
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest
import structlog

from holdfast.domain.events import Claims, Event, JobReaped, Problem, Reaping, StoreFailed, WakeUps
from holdfast.domain.worker_states import RunState, WorkerState
from holdfast.observe.logs import LogFormat, LogSubscriber, configure, standard_logging
from tests.unit.observe.samples import EVERY_KIND, JOB, lease_gone, run_ended, run_moved, runner_ended, worker_moved

URL = "postgresql://holdfast:hunter2@db/jobs"


def written(*events: Event, level: str = "debug") -> list[dict[str, Any]]:
    stream = io.StringIO()
    subscriber = LogSubscriber(configure("json", level, stream))
    for event in events:
        subscriber(event)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_every_kind_of_event_has_its_sentence() -> None:
    assert {type(event) for event in EVERY_KIND} == set(get_args(Event))
    assert len(written(*EVERY_KIND)) == len(EVERY_KIND)


LEVELS = [
    (worker_moved(WorkerState.CONNECTING), "debug"),
    (worker_moved(WorkerState.RECOVERING), "debug"),
    (worker_moved(WorkerState.POLLING), "debug"),
    (worker_moved(WorkerState.BACKING_OFF), "debug"),
    (worker_moved(WorkerState.IDLE), "debug"),
    (worker_moved(WorkerState.ERROR_WAIT), "warning"),
    (worker_moved(WorkerState.DRAINING), "info"),
    (worker_moved(WorkerState.STOPPED), "info"),
    (run_moved(RunState.CLAIMING, RunState.PROCESSING), "debug"),
    (run_ended("succeeded"), "debug"),
    (run_ended("snoozed"), "debug"),
    (run_ended("retry_scheduled"), "info"),
    (run_ended("failed"), "info"),
    (run_ended("crashed"), "info"),
    (run_ended("released"), "info"),
    (run_ended("something_new"), "info"),
    (run_ended(None, "refused"), "warning"),
    (run_ended(None, "busy"), "debug"),
    (lease_gone(refused=True), "warning"),
    (lease_gone(refused=False), "warning"),
    (runner_ended(signal=9), "error"),
    (runner_ended(exit_code=1), "error"),
    (runner_ended(exit_code=0), "warning"),
    (runner_ended(why="recycled", signal=15), "info"),
    (Claims(0, 0.1), "debug"),
    (Reaping(0), "debug"),
    (Reaping(1), "info"),
    (WakeUps("listening"), "info"),
    (WakeUps("degraded"), "warning"),
    (StoreFailed("claim", "away"), "warning"),
    (Problem("loop", "KeyError"), "error"),
]


@pytest.mark.parametrize(("event", "level"), LEVELS)
def test_an_event_has_its_level(event: Event, level: str) -> None:
    [line] = written(event)
    assert line["level"] == level


@pytest.mark.parametrize(("event", "level"), LEVELS)
def test_what_is_below_the_chosen_level_is_not_written(event: Event, level: str) -> None:
    assert len(written(event, level="info")) == (level != "debug")


@pytest.mark.parametrize("event", [run_moved(None, RunState.CLAIMING), run_ended(), lease_gone()])
def test_a_line_about_a_job_names_the_job_and_the_attempt(event: Event) -> None:
    [line] = written(event)
    assert (line["job_id"], line["attempt"], line["task"]) == (JOB, 2, "mail")


def test_a_line_has_its_time_in_utc() -> None:
    [line] = written(Reaping(1))
    assert line["timestamp"].endswith("Z")
    assert abs(datetime.now(UTC) - datetime.fromisoformat(line["timestamp"])) < timedelta(minutes=1)


def test_a_runner_that_was_killed_is_told_with_the_name_of_the_signal() -> None:
    assert written(runner_ended(signal=9))[0]["signal"] == "SIGKILL"
    assert written(runner_ended(signal=40))[0]["signal"] == "40"


def test_a_problem_comes_with_its_stack() -> None:
    [line] = written(Problem("loop", "KeyError: 'x'", "Traceback (most recent call last): …"))
    assert line["stack"].startswith("Traceback")


@pytest.mark.parametrize("format", get_args(LogFormat))
def test_no_password_of_a_url_is_written(format: LogFormat) -> None:
    stream = io.StringIO()
    subscriber = LogSubscriber(configure(format, "debug", stream))
    subscriber(StoreFailed("connect", f"cannot reach {URL}"))
    subscriber(run_ended("failed", error=f"ValueError: {URL}"))
    subscriber(Problem("loop", URL, f"Traceback\n  connect({URL!r})"))
    assert "hunter2" not in stream.getvalue()
    assert stream.getvalue().count("holdfast:***@db") == 4


@pytest.mark.parametrize("format", get_args(LogFormat))
def test_a_field_that_is_named_like_a_secret_is_hidden(format: LogFormat) -> None:
    stream = io.StringIO()
    logger = configure(format, "info", stream)
    logger.info("hello", lease_token="hunter2", nested={"api_key": ["hunter2"], "urls": [URL]}, secret=b"hunter2")
    try:
        raise ValueError(URL)
    except ValueError as error:
        logger.error("failed", cause=error, exc_info=True)
    assert "hunter2" not in stream.getvalue()
    assert "ValueError" in stream.getvalue()


@pytest.mark.parametrize("format", get_args(LogFormat))
def test_a_text_with_line_breaks_cannot_forge_a_line(format: LogFormat) -> None:
    stream = io.StringIO()
    LogSubscriber(configure(format, "info", stream))(run_ended("failed", error="boom\n12:00 [info] all is well"))
    assert len(stream.getvalue().splitlines()) == 1


@pytest.mark.parametrize("format", get_args(LogFormat))
def test_a_text_with_control_characters_cannot_steer_the_terminal(format: LogFormat) -> None:
    stream = io.StringIO()
    LogSubscriber(configure(format, "info", stream))(run_ended("failed", error="\x1b[2Jboom\x9b2J"))
    LogSubscriber(configure(format, "info", stream))(Problem("loop", "boom", "Traceback\r\x1b[2J"))
    assert "boom" in stream.getvalue()
    assert not set(stream.getvalue()) & {"\x1b", "\x9b", "\r"}


@pytest.mark.parametrize("how", ["the exception", "a tuple", "true", "nothing"])
def test_a_json_line_is_what_structlog_would_write(how: str) -> None:
    ours, theirs = io.StringIO(), io.StringIO()
    processors: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(default=str),
    ]
    plain = structlog.wrap_logger(structlog.PrintLogger(theirs), processors=processors, context_class=dict)
    for write in (configure("json", "debug", ours).error, plain.error):
        try:
            raise ValueError("boom")
        except ValueError as error:
            told = {"the exception": error, "a tuple": sys.exc_info(), "true": True, "nothing": None}[how]
            write("hällo", job_id="1", attempt=2, at=timedelta(seconds=1), many=[1, "a"], exc_info=told)
    our_line, their_line = json.loads(ours.getvalue()), json.loads(theirs.getvalue())
    assert list(our_line) == list(their_line)
    assert len(our_line.pop("timestamp")) == len(their_line.pop("timestamp"))
    assert our_line == their_line


def test_the_pretty_format_has_no_colours_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    LogSubscriber(configure("pretty", "info", stream))(Reaping(2))
    assert "\x1b" not in stream.getvalue()
    assert "expired leases reaped" in stream.getvalue()
    assert "count=2" in stream.getvalue()


def test_the_users_own_logging_is_left_alone() -> None:
    structlog.reset_defaults()
    handlers = list(logging.getLogger().handlers)
    assert written(Reaping(1))
    assert not structlog.is_configured()
    assert logging.getLogger().handlers == handlers


def test_the_users_structlog_configuration_does_not_change_ours() -> None:
    structlog.configure(processors=[], cache_logger_on_first_use=False)
    try:
        assert written(Reaping(1))[0]["event"] == "expired leases reaped"
    finally:
        structlog.reset_defaults()


class BrokenPipe(io.StringIO):
    def write(self, _text: str) -> int:
        raise BrokenPipeError


def test_a_log_that_cannot_be_written_does_not_stop_the_worker() -> None:
    closed = io.StringIO()
    closed.close()
    for stream in (closed, BrokenPipe()):
        LogSubscriber(configure("json", "info", stream))(Reaping(1))


def test_a_problem_and_a_reaped_job_name_the_job_and_the_attempt() -> None:
    for event in (Problem("recording an attempt", "boom", None, JOB, 2), JobReaped(JOB, 2, "lease_lost")):
        [line] = written(event)
        assert (line["job_id"], line["attempt"]) == (JOB, 2)
    assert "job_id" not in written(Problem("loop", "boom"))[0]


@pytest.mark.parametrize("format", get_args(LogFormat))
def test_what_libraries_log_is_written_as_our_own_lines_are_and_without_secrets(format: LogFormat) -> None:
    stream = io.StringIO()
    before = list(logging.getLogger().handlers)
    with standard_logging(configure(format, "info", stream)):
        logging.getLogger("uvicorn.error").error("cannot serve %s", URL)
        logging.getLogger("some.library").info("chatter")
        try:
            raise ValueError(URL)
        except ValueError:
            logging.getLogger("asyncio").exception("Task exception was never retrieved")
        logging.getLogger("holdfast.serve").warning("careful")
    assert logging.getLogger().handlers == before
    logging.getLogger("uvicorn.error").error("nobody listens any more")
    text = stream.getvalue()
    assert "hunter2" not in text
    assert "chatter" not in text
    assert "nobody listens" not in text
    for said in ("cannot serve", "uvicorn.error", "ValueError", "careful"):
        assert said in text
    if format == "json":
        lines = [json.loads(line) for line in text.splitlines()]
        assert [line["logger"] for line in lines] == ["uvicorn.error", "asyncio", "holdfast.serve"]


def test_inside_an_rq_worker_the_same_secrets_are_hidden(caplog: pytest.LogCaptureFixture) -> None:
    from holdfast.rq.running import _log

    _log(StoreFailed("connect", f"cannot reach {URL}"))
    _log(Problem("recording an attempt", f"Authorization: Bearer {'5' * 64}", None, JOB, 2))
    assert "cannot reach" in caplog.text
    assert f"job_id={JOB}, attempt=2" in caplog.text
    assert "hunter2" not in caplog.text
    assert "55555" not in caplog.text
