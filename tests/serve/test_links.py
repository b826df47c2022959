"""The one-time link: shown as often as somebody looks, used once, by whoever presses the button first."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.domain.errors import ConfigurationError
from holdfast.domain.tokens import TOKEN_PATTERN, NewToken, Scope
from holdfast.serve.links import check_bind, welcome
from holdfast.stores.sql_store import SqlStore
from holdfast.wiring.sql import open_store
from tests.serve import http
from tests.serve.grounds import Served, bearer, serving


@pytest.fixture(scope="module")
def planes(served_database: str) -> Iterator[list[Served]]:
    """Two over one store."""
    with serving(served_database) as first, serving(served_database) as second:
        yield [first, second]


@pytest.fixture
def link(planes: list[Served]) -> str:
    code = planes[0].store.create_admin_link(3600).text
    return f"/welcome?code={code}"


def code_in(page: str) -> str:
    found = re.search(rf'name="code" value="({TOKEN_PATTERN})"', page)
    assert found is not None, page
    return found[1]


def test_looking_at_a_link_does_not_use_it_and_pressing_the_button_does(planes: list[Served], link: str) -> None:
    first, second = planes
    for plane in (first, second, first):
        page = http.get(plane.url + link)
        assert page.status_code == 200
    assert "<script" not in page.text
    assert re.search(r"(src|href)=", page.text) is None, "it loads nothing"
    assert page.headers["cache-control"] == "no-store"
    assert page.headers["referrer-policy"] == "same-origin"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    code = code_in(page.text)

    with ThreadPoolExecutor(6) as pool:
        pressed = list(pool.map(lambda n: http.post(f"{planes[n % 2].url}/welcome", data={"code": code}), range(6)))
    assert sorted(answer.status_code for answer in pressed) == [200, 403, 403, 403, 403, 403]
    [page] = [answer for answer in pressed if answer.status_code == 200]
    assert page.headers["cache-control"] == "no-store"
    found = re.search(rf"<pre>({TOKEN_PATTERN})</pre>", page.text)
    assert found is not None
    token = html.unescape(found[1])
    assert token != code
    assert http.get(f"{second.url}/api/v1/tokens", headers=bearer(token)).status_code == 200
    assert http.get(f"{second.url}/api/v1/tokens", headers=bearer(code)).status_code == 401


@pytest.mark.parametrize("code", ["", "x", "hf_0000000000000000_" + "0" * 64, '"><script>alert(1)</script>', "é" * 300])
def test_a_link_that_is_not_good_says_so_and_no_more(planes: list[Served], code: str) -> None:
    before = len(planes[0].store.tokens())
    shown = http.get(f"{planes[0].url}/welcome", params={"code": code})
    assert shown.status_code == (200 if code.startswith("hf_") else 403), "whether it is good only its use tells"
    pressed = http.post(f"{planes[0].url}/welcome", data={"code": code})
    assert pressed.status_code in (403, 413)
    assert "<script" not in shown.text + pressed.text
    assert len(planes[0].store.tokens()) == before


@pytest.fixture
def fresh(tmp_path: object) -> Iterator[SqlStore]:
    """A store without any token."""
    store = open_store(f"sqlite:///{tmp_path}/fresh.db")
    yield store
    store.close()


def test_the_link_is_printed_while_there_is_no_token_also_where_there_is_no_terminal(fresh: SqlStore) -> None:
    first = io.StringIO()
    welcome(fresh, "http://127.0.0.1:8787", first)
    found = re.search(rf"http://127\.0\.0\.1:8787/welcome\?code=({TOKEN_PATTERN})\n", first.getvalue())
    assert found is not None
    assert fresh.use_admin_link(found[1]) is not None
    later = io.StringIO()
    welcome(fresh, "http://127.0.0.1:8787", later)
    assert later.getvalue() == "", "there is a token now"


def test_a_public_address_needs_a_token_first(fresh: SqlStore) -> None:
    for host in ("127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost", "LOCALHOST"):
        check_bind(host, fresh)
    public = ("0.0.0.0", "::", "192.0.2.1", "example.org", "localhost.example.org", "")
    for host in public:
        with pytest.raises(ConfigurationError, match="holdfast tokens create NAME --scope admin, or bind 127"):
            check_bind(host, fresh)
    fresh.create_admin_link(3600)
    with pytest.raises(ConfigurationError):
        check_bind("0.0.0.0", fresh)
    fresh.create_token(NewToken("gone", (Scope.WORKER,)))
    for host in public:
        check_bind(host, fresh)
    fresh.revoke_token("gone")
    with pytest.raises(ConfigurationError):
        check_bind("0.0.0.0", fresh)
