"""Values as they travel: what comes in is taken at its word, what goes out looks the same from every store."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Path, Response
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    Strict,
)

from holdfast.domain.names import MAX_NAME

JSON = "application/json"


def utc_text(moment: datetime) -> str:
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _only_text(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError("must be a time as text, such as 2030-01-31T12:00:00Z")
    return value


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("must be between the years 1 and 9999 in UTC") from None


# Out: always UTC, always with microseconds, so that text order is time order.
Moment = Annotated[datetime, PlainSerializer(utc_text, return_type=str, when_used="json")]
# In: with a time zone. A number could be seconds or milliseconds, since anything.
GivenMoment = Annotated[
    AwareDatetime,
    BeforeValidator(_only_text, json_schema_input_type=AwareDatetime),
    AfterValidator(_in_utc),
    Field(description="with a time zone: 2030-01-31T12:00:00Z"),
]
GivenText = Annotated[str, Strict()]
GivenName = Annotated[str, Strict(), Field(min_length=1, max_length=MAX_NAME)]
GivenInteger = Annotated[int, Strict()]
GivenNumber = Annotated[float, Strict(), Field(allow_inf_nan=False)]
GivenFlag = Annotated[bool, Strict()]

JobIdPath = Annotated[str, Path(description="a job's id", json_schema_extra={"format": "uuid"})]
NamePath = Annotated[str, Path(min_length=1, max_length=MAX_NAME)]


class Form(BaseModel):
    """What is sent to us: a name that we do not know is refused, it may be a misspelt one that we do."""

    model_config = ConfigDict(extra="forbid")

    def given(self) -> dict[str, Any]:
        """What was named, and is not null."""
        named = {name: getattr(self, name) for name in self.model_fields_set}
        return {name: value for name, value in named.items() if value is not None}


class View(BaseModel):
    """What we send, made from the values of the domain; what a view does not name is not sent."""

    model_config = ConfigDict(from_attributes=True)


def answer(view: View, status: int = 200) -> Response:
    """Encoded right here: a route that does so in a budget's thread keeps the event loop free."""
    return Response(view.model_dump_json(), status, media_type=JSON)
