"""What one end writes as JSON, the other end reads as it was, and it ignores members that it does not know."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.answers import Beaten, Settled
from holdfast.domain.artifacts import Artifact
from holdfast.domain.feed import Transition
from holdfast.domain.job import Attempt, AuditEvent, Claimed, Enqueued, Job
from holdfast.domain.jsonable import from_json, to_json
from holdfast.domain.logs import LogLine
from holdfast.domain.manifest import TaskInfo
from holdfast.domain.outcome import Outcome, Report, Usage
from holdfast.domain.record import Record
from holdfast.domain.views import QueueView, Refusal, SourceEvent, SourceView, StateCount, Stuck, WorkerView
from holdfast.domain.wire import (
    beaten_from_json,
    beaten_to_json,
    claimed_from_json,
    claimed_to_json,
    outcome_from_json,
    outcome_to_json,
    report_from_json,
    report_to_json,
    settled_from_json,
    settled_to_json,
)

JOB_ID = "01890a5d-ac96-774b-bcce-b302099a8057"
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)  # JSON has no lone surrogates
WHOLE = st.integers(0, 2**53)
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
MEMBERS = st.dictionaries(
    TEXT,
    st.recursive(st.none() | st.booleans() | WHOLE | NUMBER | TEXT, lambda inner: st.lists(inner, max_size=3)),
    max_size=3,
)
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    Any: st.none() | WHOLE | TEXT | MEMBERS,
    datetime: st.datetimes(timezones=st.just(UTC)),
    str: TEXT,
    int: WHOLE,
    float: NUMBER,
    bool: st.booleans(),
    NoneType: st.none(),
}


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of this type."""
    if hint in PLAIN:
        return PLAIN[hint]
    if get_origin(hint) in (Union, UnionType):
        return st.one_of([values(part) for part in get_args(hint)])
    if get_origin(hint) is tuple:
        return st.lists(values(get_args(hint)[0]), max_size=3).map(tuple)
    if get_origin(hint) is dict:
        return MEMBERS
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(hint)
    assert isinstance(hint, type), hint
    assert is_dataclass(hint), hint
    hints = get_type_hints(hint)
    return st.builds(hint, **{item.name: values(hints[item.name]) for item in fields(hint) if item.init})


def sent(value: Any) -> Any:
    """As it arrives, from an end that is newer."""
    return json.loads(json.dumps({**value, "of a newer release": [1]}))


@pytest.mark.parametrize(
    "kind",
    [
        *(Attempt, AuditEvent, Enqueued, Job, QueueView, Record, Refusal),
        *(SourceEvent, SourceView, StateCount, Stuck, Transition, WorkerView),
    ],
)
@given(data=st.data())
def test_what_is_listed_arrives_as_it_was(kind: type[Any], data: st.DataObject) -> None:
    value = data.draw(values(kind))
    assert from_json(kind, sent(to_json(value))) == value


@given(values(Outcome))
def test_outcome_arrives_as_it_was(outcome: Outcome) -> None:
    assert outcome_from_json(sent(outcome_to_json(outcome))) == outcome


ARTIFACTS = st.builds(
    Artifact, st.just(JOB_ID), st.just(7), TEXT, TEXT, WHOLE, st.text("0123456789abcdef", min_size=64, max_size=64)
)
REPORTS = st.builds(
    Report,
    st.just(JOB_ID),
    st.just(7),
    TEXT,
    values(Outcome),
    worker=st.just("ann"),
    usage=values(Usage),
    progress=values(Any).filter(lambda progress: progress != {}),
    artifacts=st.lists(ARTIFACTS, max_size=2).map(tuple),
    credential=st.just("token"),
    message_id=st.none() | TEXT,
    cache=st.dictionaries(st.sampled_from(["shop", "bank"]), st.tuples(st.integers(0, 99), st.integers(1, 99))),
)


@given(REPORTS)
def test_report_arrives_as_it_was(report: Report) -> None:
    assert report_from_json(sent(report_to_json(report)), "ann", "token") == report


@given(values(Claimed), MEMBERS)
def test_claim_arrives_as_it_was(claimed: Claimed, payload: dict[str, Any]) -> None:
    claimed = replace(claimed, payload_json=json.dumps(payload))
    assert claimed_from_json(sent(claimed_to_json(claimed))) == claimed


@pytest.mark.parametrize(
    ("kind", "again"),
    [
        (Beaten, lambda beaten: beaten_from_json(beaten.job_id, sent(beaten_to_json(beaten)))),
        (Settled, lambda settled: settled_from_json(settled.job_id, settled.attempt, sent(settled_to_json(settled)))),
        (LogLine, lambda line: LogLine.from_json(sent(line.to_json()))),
        (TaskInfo, lambda task: TaskInfo.from_json(sent(task.to_json()))),
    ],
)
@given(data=st.data())
def test_what_workers_and_stores_say_arrives_as_it_was(
    kind: type[Any], again: Callable[[Any], Any], data: st.DataObject
) -> None:
    value = data.draw(values(kind))
    assert again(value) == value
