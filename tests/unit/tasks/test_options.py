"""Options of tasks and jobs: every wrong one is named when it is written down."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.domain.errors import InvalidInput
from holdfast.domain.retry import RetryPolicy
from holdfast.tasks.options import command_options, in_manifest, job_options, on_new_job, task_options


@pytest.mark.parametrize(
    ("name", "given", "meant"),
    [
        ("queue", "mail", "mail"),
        ("priority", -100, -100),
        ("retry", RetryPolicy("linear", 5.0), RetryPolicy("linear", 5.0)),
        ("retry", "linear", RetryPolicy("linear")),
        ("retry", 30, RetryPolicy("fixed", 30.0)),
        ("retry", "1m30s", RetryPolicy("fixed", 90.0)),
        ("retry", timedelta(minutes=2), RetryPolicy("fixed", 120.0)),
        ("retry", None, None),
        ("timeout", "5m", 300.0),
        ("lease", 15, 15.0),
        ("version", 3, "3"),
        ("on_lost_lease", "continue", "continue"),
        ("no_retry", KeyError, (KeyError,)),
        ("no_retry", [KeyError, ValueError], (KeyError, ValueError)),
        ("no_retry", (), ()),
    ],
)
def test_an_option_of_a_task(name: str, given: Any, meant: Any) -> None:
    assert task_options({name: given}) == {name: meant}


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("queue", ""),
        ("queue", None),
        ("priority", 101),
        ("priority", "1"),
        ("max_attempts", 0),
        ("max_crashes", 1.5),
        ("retry", "sometimes"),
        ("retry", -1),
        ("retry", "2d"),
        ("retry", {"kind": "fixed"}),
        ("timeout", 0),
        ("timeout", "soon"),
        ("lease", -1),
        ("source", 5),
        ("version", True),
        ("version", ""),
        ("on_lost_lease", "shrug"),
        ("no_retry", "KeyError"),
        ("no_retry", (KeyError, 5)),
        ("retries", 3),
        ("run_after", datetime(2030, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_wrong_option_of_a_task_is_named(name: str, given: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        task_options({name: given})
    assert caught.value.field.split(".")[0] == name


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"run_after": datetime(2030, 1, 1)}, "run_after"),  # noqa: DTZ001
        ({"run_after": "tomorrow"}, "run_after"),
        ({"delay": -1}, "delay"),
        ({"delay": 1, "run_after": datetime(2030, 1, 1, tzinfo=UTC)}, "delay"),
        ({"unique": "yes"}, "unique"),
        ({"unique_key": ""}, "unique_key"),
        ({"reuse": 0}, "reuse"),
        ({"id": "7"}, "id"),
        ({"traceparent": "\n"}, "traceparent"),
        ({"version": "2"}, "version"),
        ({"no_retry": KeyError}, "no_retry"),
    ],
)
def test_a_wrong_option_of_a_job_is_named(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        job_options(options)
    assert caught.value.field == field


def test_a_command_has_no_exceptions_to_name() -> None:
    with pytest.raises(InvalidInput, match="no_retry: unknown option"):
        command_options({"no_retry": KeyError})


def test_options_take_the_names_that_a_new_job_has() -> None:
    options = job_options({"timeout": "1m", "lease": 5, "reuse": "1h", "connection": object(), "queue": "q"})

    assert on_new_job(options) == {"timeout_seconds": 60.0, "lease_seconds": 5.0, "reuse_seconds": 3600.0, "queue": "q"}


def test_a_manifest_has_only_what_was_named_and_as_json() -> None:
    options = task_options({"retry": "30s", "timeout": None, "version": "2", "no_retry": KeyError, "priority": 5})

    assert in_manifest(options) == {
        "retry": {"kind": "fixed", "base": 30.0, "jitter": 0.2, "cap": 86400.0},
        "priority": 5,
    }
