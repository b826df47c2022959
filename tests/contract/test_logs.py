"""What jobs said: kept in order, once, whatever it is made of."""

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.domain.errors import InvalidInput
from holdfast.domain.logs import LogLine, Stream
from holdfast.stores.sql_store import SqlStore

JOB = "0199a2b0-0000-7000-8000-000000000001"
OTHER = "0199a2b0-0000-7000-8000-000000000002"
AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def line(number: int, attempt: int = 1, job_id: str = JOB, **more: Any) -> LogLine:
    values: dict[str, Any] = {"at": AT + timedelta(seconds=number), "stream": Stream.LOG, "message": f"line {number}"}
    return LogLine(job_id=job_id, attempt=attempt, number=number, **{**values, **more})


def test_lines_come_back_as_they_were_said_and_in_order(store: SqlStore) -> None:
    said = [
        line(0, level="info", fields={"a": [1, 2.5, None, True], "ü": {"b": "c"}}),
        line(1, stream=Stream.STDOUT, message=""),
        line(2, stream=Stream.STDERR, message="é\n\t…"),
        line(0, attempt=2),
    ]
    store.append_logs([said[3], said[1], said[0], line(7, job_id=OTHER), said[2]])
    assert store.logs(JOB) == said
    assert store.logs(JOB, attempt=2) == said[3:]
    assert store.logs(JOB, attempt=3) == []


def test_a_line_that_is_sent_twice_is_stored_once(store: SqlStore) -> None:
    store.append_logs([line(0), line(1)])
    store.append_logs([line(1, message="said again"), line(2), line(2)])
    assert [found.message for found in store.logs(JOB)] == ["line 0", "line 1", "line 2"]


def test_pages_neither_skip_nor_repeat(store: SqlStore) -> None:
    said = [line(number, attempt) for attempt in (1, 2) for number in range(25)]
    store.append_logs(said)
    found: list[LogLine] = []
    while page := store.logs(JOB, after=(found[-1].attempt, found[-1].number) if found else None, limit=7):
        found += page
    assert found == said
    assert store.logs(JOB, attempt=2, after=(1, 20)) == said[25:]


def test_to_append_nothing_is_fine(store: SqlStore) -> None:
    store.append_logs([])
    assert store.logs(JOB) == []


def test_nothing_that_a_job_says_can_keep_its_neighbours_from_being_stored(store: SqlStore) -> None:
    deep: Any = "bottom"
    for _ in range(200):
        deep = [deep]
    store.append_logs(
        [
            line(0, message="a\x00b\ud800c", level="\x00" * 900),
            line(1, fields={"nul\x00": "\x00", "lone": "\udfff", "nan": math.nan, "object": object, "deep": deep}),
            line(2, fields={"huge": 10**5000, "long": "x" * 100_000}),
            line(3, message="m" * 1_000_000),
            line(4),
        ]
    )
    odd, fields, long_fields, long_message, plain = store.logs(JOB)
    assert (odd.message, len(odd.level or "") < 300) == ("a\ufffdb?c", True)
    assert (fields.fields["nul\ufffd"], fields.fields["lone"], fields.fields["nan"]) == ("\ufffd", "?", "nan")
    assert "characters left out" in long_fields.fields["too_long"]
    assert len(long_message.message) < 70_000
    assert plain == line(4)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [({"job_id": "x"}, "job_id"), ({"attempt": -1}, "attempt"), ({"number": 2**31}, "number")],
)
def test_a_line_of_no_attempt_is_refused(store: SqlStore, wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput, match=field):
        store.append_logs([line(0), replace(line(1), **wrong)])
    assert store.logs(JOB) == []


@pytest.mark.parametrize("limit", [0, 10_001, "5"])
def test_a_page_has_a_size(store: SqlStore, limit: Any) -> None:
    with pytest.raises(InvalidInput, match="limit"):
        store.logs(JOB, limit=limit)
