"""Pages and forms of the dashboard with the corpus: it stays text, forms take it or refuse it, no header carries it.

`tests/dashboard/test_hostile_names.py` looks at the same with a browser.
"""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from urllib.parse import quote_from_bytes

import httpx
import pytest

from holdfast.serve.dashboard.session import cookie_name, csrf_word
from holdfast.serve.options import Limits
from tests.dashboard.fleet import Fleet, Names
from tests.security.corpus import HOSTILE
from tests.serve import http
from tests.serve.grounds import Served, serving

PAGES = ("/", "/jobs", "/queues", "/workers", "/sources", "/dead", "/schedules", "/audit")
FORMS = ("/queues/pause", "/queues/limit", "/sources/pause", "/schedules/run", "/bulk/cancel", "/sign-in")
QUERIES = (
    "/jobs?queue=",
    "/jobs?task=",
    "/jobs?state=",
    "/jobs?after=",
    "/audit?job=",
    "/source?name=",
    "/sign-in?next=",
)
NAMES = [text for text in HOSTILE.values() if text.isprintable() and text.strip() and len(text) < 150]
ALL = " ".join(text for text in HOSTILE.values() if "\0" not in text and text.encode(errors="replace").decode() == text)


class Suspicious(HTMLParser):
    """Elements and attributes that our templates do not write, or that only a hostile text could have written."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        names = dict(attributes)
        if tag in ("img", "iframe", "object", "embed", "base") or (tag == "script" and "src" not in names):
            self.found.append(tag)
        self.found += [name for name in names if name.startswith("on")]
        self.found += [f"{name}={value}" for name, value in attributes if value and _is_an_order(name, value)]


def _is_an_order(name: str, value: str) -> bool:
    in_a_link = name in ("href", "src", "action", "formaction") and value.strip().lower().startswith("javascript:")
    return in_a_link or (name == "hx-get" and value == "/sign-out")


def suspicious(html: str) -> list[str]:
    parser = Suspicious()
    parser.feed(html)
    return parser.found


# What a page or a form may do to the store is in `test_http_fields.py`, on both.
pytestmark = pytest.mark.parametrize("served_database", ["sqlite"], indirect=True, scope="module")


@pytest.fixture(scope="module")
def served(served_database: str) -> Iterator[Served]:
    with serving(served_database, limits=Limits(requests_per_second=0, failures_per_second=0)) as served:
        yield served


@pytest.fixture
def visitor(served: Served) -> Iterator[httpx.Client]:
    token = served.tokens["admin"]
    cookies = {cookie_name(httpx.URL(served.url).port): token}
    headers = {"X-CSRF-Token": csrf_word(token)}
    with http.client(base_url=served.url, cookies=cookies, headers=headers) as client:
        yield client


def test_everything_on_a_page_is_text(served: Served, visitor: httpx.Client) -> None:
    jobs = []
    for name in NAMES:
        fleet = Fleet(served.store, Names(name, name, name, name, name, name))
        fleet.furnish()
        jobs.append(fleet.succeeded())
    fleet = Fleet(served.store, Names(text=ALL[:1_000]))
    jobs += [fleet.succeeded(), fleet.failed(), fleet.troubled()]
    for path in (*PAGES, *(f"/jobs/{job_id}" for job_id in jobs)):
        answer = visitor.get(path)
        assert answer.status_code == 200, path
        assert suspicious(answer.text) == [], path
        assert "hacked" not in repr(answer.headers)


def test_a_page_that_is_searched_for_is_so_as_well(visitor: httpx.Client) -> None:
    for number, text in enumerate(HOSTILE.values()):
        raw = quote_from_bytes(text.encode("utf-8", "surrogatepass"))
        for query in (QUERIES[number % len(QUERIES)], QUERIES[-1]):
            answer = visitor.get(f"{query}{raw}")
            assert answer.status_code in (200, 404, 422), (query, text, answer.status_code)
            assert answer.headers["content-type"].startswith(("text/html", "application/problem+json"))
            assert suspicious(answer.text) == [], (query, text)


def test_a_form_takes_a_text_or_refuses_it_and_no_header_repeats_it(served: Served, visitor: httpx.Client) -> None:
    for text in HOSTILE.values():
        raw = quote_from_bytes(text.encode("utf-8", "surrogatepass"))
        content = f"name={raw}&ids={raw}&token={raw}&next={raw}&seconds=60&limit=1&max_running={raw}"
        for form in FORMS:
            answer = visitor.post(form, content=content, headers={"Content-Type": "application/x-www-form-urlencoded"})
            assert answer.status_code < 500, (form, text, answer.text)
            assert "hacked" not in answer.headers.get("set-cookie", "")
            assert answer.headers.get("location", "/").startswith("/")
            assert not answer.headers.get("location", "/").startswith(("//", "/\\"))
            assert suspicious(answer.text) == [], (form, text)
    paused = {queue.name for queue in served.store.queues() if queue.paused_at is not None}
    assert {name for name in NAMES if name in paused} == set(NAMES)
    assert not [name for name in paused if "\ufffd" in name], "what is not UTF-8 names nothing"
