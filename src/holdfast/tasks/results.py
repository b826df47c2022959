"""What a task returned, as JSON."""

from __future__ import annotations

from typing import Any

from holdfast.domain.errors import InvalidInput
from holdfast.domain.spec import check_json


def result_to_json(value: Any) -> Any:
    """The value in JSON's terms; dataclasses, pydantic models, datetimes and the like are converted."""
    try:
        check_json(value, "result")
    except InvalidInput:
        return _converted(value)
    return value


def _converted(value: Any) -> Any:
    from pydantic_core import to_jsonable_python

    try:
        converted = to_jsonable_python(value)
    except Exception as error:  # a serialiser of the user's own may raise anything
        said = str(error) or type(error).__name__
        raise InvalidInput("result", f"is a {type(value).__name__}, which JSON cannot hold ({said})") from error
    check_json(converted, "result")
    return converted
