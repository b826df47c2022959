"""Every text of the corpus in every field of every operation: taken or refused, never an error of ours, and a refusal
changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import httpx
import pytest

from holdfast.domain.events import Event, Events, Problem
from holdfast.serve.options import Limits
from tests.contract.ground import ByHand
from tests.security.corpus import HOSTILE
from tests.security.fields import Field, Request, fields, with_text
from tests.serve import http
from tests.serve.grounds import WORKER, Served, serving
from tests.serve.operations import held, operations, standing

UNBOUNDED = Limits(failures_per_second=0, requests_per_second=0)
MANY = 3  # the long run has each text in every third field, and each field with a third of them
SOME = 2  # texts for each field in the short run, other ones for the next field

Served_ = tuple[Served, list[str]]


@pytest.fixture(scope="module")
def listened(served_database: str) -> Iterator[Served_]:
    """A control plane, and what went wrong in it that nobody expected."""
    problems: list[str] = []

    def note(event: Event) -> None:
        if isinstance(event, Problem):
            problems.append(f"{event.where}: {event.message}\n{event.stack}")

    with serving(served_database, Events(note), limits=UNBOUNDED) as served:
        yield served, problems


@pytest.fixture
def by_hand(served_database: str) -> Iterator[ByHand]:
    by_hand = ByHand(served_database)
    yield by_hand
    by_hand.engine.dispose()


def all_fields(served: Served) -> list[Field]:
    description = http.get(f"{served.url}/openapi.json").raise_for_status().json()
    found = fields(description, operations(served.url))
    assert len(found) > 150
    return found


def requests(served: Served, admin: httpx.Client, texts: int) -> Iterator[Request]:
    """`texts` of the corpus for each field, going round."""
    names = [name for _ in range(2) for name in HOSTILE]
    job = held(served, admin, "fields")
    for number, field in enumerate(all_fields(served)):
        if field.operation.path.startswith(WORKER):
            job = held(served, admin, "fields")
        start = number * texts % len(HOSTILE)
        for name in islice(names, start, start + texts):
            yield with_text(field, name, HOSTILE[name], job)


def ask_everything(listened: Served_, by_hand: ByHand, texts: int) -> None:
    served, problems = listened
    with served.client("admin") as admin:
        refused: list[Request] = []
        for request in requests(served, admin, texts):
            answer = request.send(admin)
            assert answer.status_code < 500, (str(request.field), request.text, answer.text, problems)
            if answer.status_code >= 400:
                assert answer.headers["content-type"] == "application/problem+json"
                refused += [request] if request.method != "get" else []
        before = standing(by_hand)
        for request in refused:
            answer = request.send(admin)
            assert 400 <= answer.status_code < 500, (str(request.field), request.text, answer.text)
        assert standing(by_hand) == before, "a refused request changed something"
    assert problems == []
    assert len(refused) > 100


def test_no_text_in_no_field_is_an_error_of_ours(listened: Served_, by_hand: ByHand) -> None:
    ask_everything(listened, by_hand, SOME)


@pytest.mark.long
def test_no_text_in_no_field_is_an_error_of_ours_with_many_of_each(listened: Served_, by_hand: ByHand) -> None:
    ask_everything(listened, by_hand, len(HOSTILE) // MANY)


@pytest.mark.parametrize("path", ["/api/v1/sources/a%ED%A0%80b", "/api/v1/sources/%FF"])
def test_an_address_that_is_not_utf_8_names_nothing(listened: Served_, path: str) -> None:
    """It would be read with other characters in place of those, and a source of another name be made."""
    served, _ = listened
    with served.client("admin") as admin:
        before = served.store.sources()
        answer = admin.put(path, json={"enabled": False})
        assert (answer.status_code, answer.json()["field"]) == (422, "path")
        assert admin.get("/api/v1/jobs?queue=%FF").json()["field"] == "query"
        assert admin.get("/api/v1/jobs?queue=%C3%BC").status_code == 200
        assert served.store.sources() == before
