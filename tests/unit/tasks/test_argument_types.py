"""Typed arguments, type by type: what is right is stored as JSON and comes back; what is wrong names the argument."""

import datetime as dt
import enum
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

import pytest
from pydantic import BaseModel, Field, SecretStr
from typing_extensions import TypedDict

from holdfast.domain.errors import ConfigurationError, InvalidInput
from holdfast.tasks.arguments import Arguments

MOMENT = dt.datetime(2030, 1, 2, 3, 4, 5, 600000, tzinfo=dt.UTC)
ID = UUID("01890a5d-ac96-774b-bcce-b302099a8057")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1


@dataclass
class Point:
    x: int
    y: int = 0


@dataclass
class Line:
    points: list[Point]
    at: dt.datetime
    tags: set[str] = field(default_factory=set)


@dataclass(eq=False)
class Uncomparable:
    x: int


class Order(BaseModel):
    id: UUID
    price: Decimal
    lines: list[Point] = []


class Renamed(BaseModel):
    kind: str = Field(alias="class")


class Options(TypedDict, total=False):
    depth: int
    since: dt.date


class Pair(NamedTuple):
    left: int
    right: str


def arguments_of(annotation: Any) -> Arguments:
    def run(value: Any) -> None:
        pass

    run.__annotations__["value"] = annotation
    return Arguments(run, "run")


RIGHT: list[tuple[Any, Any, Any]] = [
    # annotation, value given, JSON stored
    (int, 1, 1),
    (int, 2**80, 2**80),
    (str, "ä", "ä"),
    (float, 1.5, 1.5),
    (float, 1, 1.0),
    (bool, True, True),
    (None, None, None),
    (int | None, None, None),
    (int | None, 3, 3),
    (int | str, "3", "3"),
    (list[int], [1, 2], [1, 2]),
    (list, [1, "a", None], [1, "a", None]),
    (tuple[int, str], (1, "a"), [1, "a"]),
    (tuple[int, str], [1, "a"], [1, "a"]),
    (set[int], {7}, [7]),
    (dict[str, int], {"a": 1}, {"a": 1}),
    (dict[int, str], {1: "a"}, {"1": "a"}),
    (dict[str, Any], {"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}),
    (Literal["a", "b"], "a", "a"),
    (Colour, Colour.RED, "red"),
    (Colour, "red", "red"),
    (Size, Size.SMALL, 1),
    (dt.datetime, MOMENT, "2030-01-02T03:04:05.600000Z"),
    (dt.datetime, "2030-01-02T03:04:05.6Z", "2030-01-02T03:04:05.600000Z"),
    (dt.date, dt.date(2030, 1, 2), "2030-01-02"),
    (dt.timedelta, dt.timedelta(seconds=90), "PT1M30S"),
    (UUID, ID, str(ID)),
    (UUID, str(ID), str(ID)),
    (Decimal, Decimal("1.10"), "1.10"),
    (Path, Path("/tmp/a"), "/tmp/a"),
    (bytes, b"abc", "abc"),
    (Point, Point(1), {"x": 1, "y": 0}),
    (Point, {"x": 1}, {"x": 1, "y": 0}),
    (Uncomparable, Uncomparable(1), {"x": 1}),
    (Pair, Pair(1, "a"), [1, "a"]),
    (Line, Line([Point(1)], MOMENT), {"points": [{"x": 1, "y": 0}], "at": "2030-01-02T03:04:05.600000Z", "tags": []}),
    (Order, Order(id=ID, price=Decimal("9.90")), {"id": str(ID), "price": "9.90", "lines": []}),
    (Order, {"id": str(ID), "price": "9.90"}, {"id": str(ID), "price": "9.90", "lines": []}),
    (Renamed, Renamed(**{"class": "a"}), {"class": "a"}),
    (Options, {"depth": 1, "since": dt.date(2030, 1, 2)}, {"depth": 1, "since": "2030-01-02"}),
    (Options, {"since": "2030-01-02"}, {"since": "2030-01-02"}),
    (Annotated[int, Field(gt=0)], 5, 5),
    (Order | None, None, None),
    (Any, {"a": [1.5, None, (1, 2)]}, {"a": [1.5, None, [1, 2]]}),
    (object, "x", "x"),
]


def case_name(value: Any) -> str:
    return "huge" if isinstance(value, int) and value > 2**99 else repr(value)[:40]


@pytest.mark.parametrize(("annotation", "given", "stored"), RIGHT, ids=case_name)
def test_a_right_value_is_stored_as_json(annotation: Any, given: Any, stored: Any) -> None:
    payload = arguments_of(annotation).dump((given,), {})

    assert json.loads(json.dumps(payload)) == {"value": stored}


@pytest.mark.parametrize(("annotation", "given"), [case[:2] for case in RIGHT], ids=case_name)
def test_a_stored_value_comes_back_as_its_type(annotation: Any, given: Any) -> None:
    arguments = arguments_of(annotation)
    through_the_database = json.loads(json.dumps(arguments.dump((given,), {})))

    _, named = arguments.load(through_the_database, None)

    again = arguments.dump((named["value"],), {})
    assert json.loads(json.dumps(again)) == through_the_database
    if isinstance(given, Point | Line | Order | Colour | dt.datetime | dt.date | UUID | Decimal | Pair | set):
        assert named["value"] == given
        assert type(named["value"]) is type(given)


WRONG: list[tuple[Any, Any, str]] = [
    (int, "1", "integer"),
    (int, 1.0, "integer"),
    (int, True, "integer"),
    (int, None, "integer"),
    (int, 10**5000, "thousands of digits"),
    (str, 1, "string"),
    (str, b"a", "string"),
    (str, "a\x00", "NUL"),
    (str, "\ud800", "surrogate"),
    (float, "1.5", "number"),
    (float, float("nan"), "NaN"),
    (float, float("inf"), "infinities"),
    (bool, 1, "boolean"),
    (None, 0, "null"),
    (int | None, "x", "integer"),
    (int | str, 1.5, "integer"),
    (list[int], [1, "2"], "[1]"),
    (list[int], "12", "array"),
    (list[float], [float("nan")], "NaN"),
    (tuple[int, str], [1], "[1]"),
    (dict[str, int], {"a": "1"}, ".a"),
    (dict[str, int], {1: 1}, "string"),
    (dict[tuple[int, int], int], {(1, 2): 3}, "come back"),
    (Literal["a", "b"], "c", "'a' or 'b'"),
    (Colour, "green", "'red' or 'blue'"),
    (Colour, 1, "'red' or 'blue'"),
    (dt.datetime, "yesterday", "datetime"),
    (dt.datetime, 12.5, "datetime"),
    (dt.date, "2030-13-01", "date"),
    (UUID, "x", "UUID"),
    (Decimal, "ten", "decimal"),
    (Point, {"y": 1}, ".x"),
    (Point, {"x": "1"}, ".x"),
    (Point, Colour.RED, "Point"),
    (Line, {"points": [{"x": 1}, {"x": None}], "at": "2030-01-02T03:04:05Z"}, ".points[1].x"),
    (Order, {"id": str(ID)}, ".price"),
    (Order, 5, "object"),
    (Options, {"depth": "1"}, ".depth"),
    (Annotated[int, Field(gt=0)], 0, "greater than 0"),
    (list[Point], [Point(1), {"x": 2}], "Point"),
    (SecretStr, SecretStr("hush"), "does not come back"),
    (list[Any], [MOMENT], "does not come back"),
    (Any, MOMENT, "datetime"),
    (Any, {1: 2}, "keys"),
    (Any, {"a": {"b": {1, 2}}}, ".a.b"),
    (Any, b"x", "bytes"),
    (Any, float("nan"), "NaN"),
    (object, Colour.RED, "Colour"),
]


@pytest.mark.parametrize(("annotation", "value", "rule"), WRONG, ids=case_name)
def test_a_wrong_value_is_refused_and_its_argument_named(annotation: Any, value: Any, rule: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        arguments_of(annotation).dump((value,), {})

    assert caught.value.field == "value"
    assert rule in caught.value.rule


@pytest.mark.parametrize(
    ("annotation", "stored"),
    [(int, "1"), (int, True), (Point, {"y": 1}), (dt.datetime, "never"), (list[int], {"a": 1}), (Colour, "green")],
    ids=case_name,
)
def test_a_stored_value_that_does_not_fit_is_refused_at_run(annotation: Any, stored: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        arguments_of(annotation).load({"value": stored}, None)

    assert caught.value.field == "value"


@pytest.mark.parametrize("annotation", [Callable[[int], Any], type("Foreign", (), {})], ids=["callable", "class"])
def test_an_annotation_that_cannot_be_stored_is_a_configuration_error(annotation: Any) -> None:
    with pytest.raises((ConfigurationError, InvalidInput), match="value"):
        arguments_of(annotation).dump((print,), {})
