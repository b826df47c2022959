"""Secrets are known by their form, wherever in a line they stand."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.observe.redaction import redact

ID, SECRET, LEASE = "0123456789abcdef", "5" * 64, "c" * 64
TOKEN = f"hf_{ID}_{SECRET}"


def test_tokens_are_hidden_in_any_text_and_a_bearer_tokens_id_stays() -> None:
    line = {
        "event": f"refused Bearer {TOKEN} from there",
        "url": f"http://127.0.0.1/welcome?code={TOKEN}",
        "upper": TOKEN.upper(),
        "cut": TOKEN[:-20],
        "error": ValueError(f"lease {LEASE} is lost"),
        "nested": {"lines": [LEASE, {"lease": LEASE}]},
    }
    shown = repr(redact(None, "info", dict(line)))
    assert SECRET[:20] not in shown
    assert LEASE not in shown
    assert f"hf_{ID}_***" in shown


def test_a_hash_is_shown_where_it_is_called_one() -> None:
    shown = redact(None, "info", {"event": "enqueued", "spec_hash": LEASE, "digest": LEASE})
    assert (shown["spec_hash"], shown["digest"]) == (LEASE, LEASE)


SECRETS = {
    "a header": "Authorization: Bearer hunter2",
    "a header of basic authentication": "{'authorization': 'Basic aHVudGVyMg=='}",
    "a header without a scheme": "Authorization: hunter2",
    "a long bearer token in words": "sent Bearer hunter2hunter2hunter2",
    "a connection string": "could not connect: host=db user=holdfast password=hunter2 dbname=jobs",
    "one with quotes": "password='hunter2 hunter2'",
    "a dictionary": "{'db_password': 'hunter2', 'api_key': \"hunter2\"}",
    "a value with quotes in it": "{'password': 'x\\'hunter2', 'secret': \"it's hunter2\"}",
    "an environment": "PGPASSWORD=hunter2 psql",
    "the password of a URL": "postgresql://holdfast:hunter2@db/jobs",
    "an option of a URL": "https://host/?x=1&access_token=hunter2",
}


@pytest.mark.parametrize("text", SECRETS.values(), ids=SECRETS)
@pytest.mark.parametrize(
    "wrapped",
    [
        lambda text: text,
        lambda text: text.encode(),
        lambda text: ValueError(text),
        lambda text: ExceptionGroup("two", [ValueError(text)]),
        lambda text: SimpleNamespace(connection=text),
        lambda text: {"a": [{"b": (text, {text})}]},
        lambda text: {text: 1},
        lambda text: frozenset({text}),
    ],
    ids=["text", "bytes", "exception", "group", "object", "nested", "key", "set"],
)
def test_no_form_of_a_secret_is_shown_however_it_is_wrapped(text: str, wrapped: Callable[[str], Any]) -> None:
    line = redact(None, "error", {"event": "refused", "cause": wrapped(text)})
    for rendered in (json.dumps(line, default=str), repr(line)):
        assert "hunter2" not in rendered
        assert "aHVudGVyMg" not in rendered


@pytest.mark.parametrize(
    "text",
    [
        "basic authentication failed",
        "HOLDFAST_TOKEN: must be a token as `holdfast tokens create` prints it",
        "no secret was given",
        "1.5 s left of the lease: 01890a5d-ac96-774b-bcce-b302099a8057.2",
    ],
)
def test_what_is_no_secret_stays_as_it_is(text: str) -> None:
    assert redact(None, "info", {"event": text})["event"] == text


def test_plain_values_stay_what_they_are() -> None:
    now = datetime.now(UTC)
    line = {"event": "x", "count": 3, "ok": True, "at": now, "nothing": None, "share": 0.5}
    assert redact(None, "info", dict(line)) == line


def test_a_field_that_cannot_be_shown_or_has_no_end_costs_nobody_the_line() -> None:
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError("hunter2")

    endless: list[Any] = []
    endless.append(endless)
    assert (
        redact(None, "info", {"event": "x", "broken": Broken(), "endless": endless})["broken"]
        == "<Broken: RuntimeError>"
    )
