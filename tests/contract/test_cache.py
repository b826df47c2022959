"""The response cache: the same promises in the store's tables and in a file of its own."""

import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast.domain.caching import MAX_CACHE_KEY, MAX_CACHED_BYTES, MOST_FORGOTTEN
from holdfast.domain.errors import InvalidInput, TooLarge
from holdfast.domain.sources import Cached
from holdfast.ports import CacheStore
from holdfast.stores.cache_file import FORGETS_EVERY, CacheFile
from holdfast.stores.sql_store import SqlStore
from tests.contract.conftest import make_empty
from tests.contract.ground import DIALECTS, ByHand, Clock, on_postgres
from tests.servers.waiting import DEADLINE_SECONDS

VALUES: list[Any] = [None, False, 0, "", "007", 1e300, 2**70, [], {}, {"a": [1, {"ü": "\u202e\U0001f600"}]}, "x" * 5000]


class Kept:
    """One of the two caches, on a clock that the test moves."""

    def __init__(self, cache: CacheStore, move: Callable[[float], None]) -> None:
        self.cache = cache
        self.move = move


@pytest.fixture(params=[*DIALECTS, "file"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return ""
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("migrated_file"), tmp_path / "holdfast.db")
        return f"sqlite:///{tmp_path / 'holdfast.db'}"
    url: str = request.getfixturevalue("migrated_database")
    make_empty(url)
    return url


@pytest.fixture
def kept(request: pytest.FixtureRequest, database_url: str, tmp_path: Path) -> Iterator[Kept]:
    if database_url:
        clock: Clock = request.getfixturevalue("clock")
        yield Kept(request.getfixturevalue("store"), clock.move)
        return
    now = [1_000_000.0]
    cache = CacheFile(tmp_path / "cache.db", tell=pytest.fail, clock=lambda: now[0], busy_seconds=DEADLINE_SECONDS)

    def move(seconds: float) -> None:
        now[0] += seconds

    yield Kept(cache, move)
    cache.close()


def test_any_json_value_comes_back_as_it_went_in(kept: Kept) -> None:
    for value in VALUES:
        assert kept.cache.cached("shop", "k") is None
        kept.cache.keep_cached("shop", "k", value, 60.0)
        found = kept.cache.cached("shop", "k")
        assert found == Cached(value)
        assert found is not None
        assert type(found.value) is type(value)
        assert kept.cache.clear_cache("shop", "k") == 1


def test_what_is_past_its_time_is_not_there(kept: Kept) -> None:
    kept.cache.keep_cached("shop", "short", 1, 10.0)
    kept.cache.keep_cached("shop", "long", 2, 30 * 86_400.0)
    kept.move(9.9)
    assert kept.cache.cached("shop", "short") == Cached(1)
    kept.move(0.2)
    assert kept.cache.cached("shop", "short") is None
    assert kept.cache.cached("shop", "long") == Cached(2)


def test_a_value_is_replaced_and_lives_anew(kept: Kept) -> None:
    kept.cache.keep_cached("shop", "k", "old", 10.0)
    kept.move(9.0)
    kept.cache.keep_cached("shop", "k", "new", 10.0)
    kept.move(9.0)
    assert kept.cache.cached("shop", "k") == Cached("new")


def test_sources_do_not_share_keys(kept: Kept) -> None:
    kept.cache.keep_cached("a", "k", 1, 60.0)
    kept.cache.keep_cached("b", "k", 2, 60.0)
    assert [kept.cache.cached(source, "k") for source in "ab"] == [Cached(1), Cached(2)]
    assert kept.cache.clear_cache("a") == 1
    assert [kept.cache.cached(source, "k") for source in "ab"] == [None, Cached(2)]


def test_one_key_or_a_whole_source_is_cleared(kept: Kept) -> None:
    for number in range(5):
        kept.cache.keep_cached("shop", f"k{number}", number, 60.0)
    assert kept.cache.clear_cache("shop", "k3") == 1
    assert kept.cache.clear_cache("shop", "k3") == 0
    assert kept.cache.clear_cache("shop") == 4
    assert kept.cache.clear_cache("shop") == 0


def test_only_what_has_expired_is_forgotten_a_batch_at_a_time(kept: Kept) -> None:
    for number in range(5):
        kept.cache.keep_cached("shop", f"k{number}", number, 10.0)
    kept.cache.keep_cached("shop", "stays", 1, 60.0)
    assert kept.cache.forget_cached(100) == 0
    kept.move(11.0)
    assert [kept.cache.forget_cached(3) for _ in range(3)] == [3, 2, 0]
    assert kept.cache.cached("shop", "stays") == Cached(1)


def test_any_text_is_a_key(kept: Kept) -> None:
    for key in ("k" * MAX_CACHE_KEY, "ü" * MAX_CACHE_KEY, " ", "a\nb\t\u202e", "' OR 1=1 --", "{}"):
        kept.cache.keep_cached("shop", key, key, 60.0)
        assert kept.cache.cached("shop", key) == Cached(key)


def test_what_cannot_be_kept_is_refused_by_name(kept: Kept) -> None:
    wrong: list[tuple[str, tuple[Any, ...]]] = [
        ("source", ("", "k", 1, 60)),
        ("source", ("a\x00", "k", 1, 60)),
        ("source", (None, "k", 1, 60)),
        ("key", ("shop", "", 1, 60)),
        ("key", ("shop", "k" * (MAX_CACHE_KEY + 1), 1, 60)),
        ("key", ("shop", "a\x00b", 1, 60)),
        ("key", ("shop", "\ud800", 1, 60)),
        ("key", ("shop", {"a": 1}, 1, 60)),
        ("value", ("shop", "k", float("nan"), 60)),
        ("value", ("shop", "k", {1: 2}, 60)),
        ("value", ("shop", "k", b"bytes", 60)),
        ("ttl_seconds", ("shop", "k", 1, 0)),
        ("ttl_seconds", ("shop", "k", 1, -1)),
        ("ttl_seconds", ("shop", "k", 1, 1e-9)),
        ("ttl_seconds", ("shop", "k", 1, 31 * 86_400)),
        ("ttl_seconds", ("shop", "k", 1, float("inf"))),
    ]
    for field, arguments in wrong:
        with pytest.raises(InvalidInput) as refused:
            kept.cache.keep_cached(*arguments)
        assert refused.value.field.startswith(field), arguments
    with pytest.raises(TooLarge) as too_large:
        kept.cache.keep_cached("shop", "k", "x" * MAX_CACHED_BYTES, 60)
    assert too_large.value.limit_bytes == MAX_CACHED_BYTES
    for limit in (0, -1, MOST_FORGOTTEN + 1, True):
        with pytest.raises(InvalidInput):
            kept.cache.forget_cached(limit)
    with pytest.raises(InvalidInput):
        kept.cache.cached("shop", "")
    assert kept.cache.clear_cache("shop") == 0


def test_the_largest_value_fits(kept: Kept) -> None:
    value = "x" * (MAX_CACHED_BYTES - 2)
    kept.cache.keep_cached("shop", "k", value, 60)
    assert kept.cache.cached("shop", "k") == Cached(value)


def test_many_at_once_leave_one_whole_value(kept: Kept) -> None:
    gate = threading.Barrier(8)

    def put(number: int) -> None:
        gate.wait()
        for turn in range(10):
            kept.cache.keep_cached("shop", "k", [number] * (turn + 1), 60.0)
            found = kept.cache.cached("shop", "k")
            assert found is not None
            assert len(set(found.value)) == 1

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(put, range(8)))


@on_postgres
def test_a_store_never_deletes_what_is_being_refreshed(store: SqlStore, by_hand: ByHand, clock: Clock) -> None:
    store.keep_cached("shop", "locked", 1, 1.0)
    store.keep_cached("shop", "free", 1, 1.0)
    clock.move(2.0)
    with by_hand.engine.begin() as connection:
        connection.exec_driver_sql("SELECT 1 FROM holdfast_cache WHERE key = 'locked' FOR UPDATE")
        assert store.forget_cached(10) == 1
    assert store.forget_cached(10) == 1


# the file alone


def test_two_processes_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "cache.db"
    one, other = CacheFile(path, tell=pytest.fail), CacheFile(path, tell=pytest.fail)
    one.keep_cached("shop", "k", {"a": 1}, 60.0)
    assert other.cached("shop", "k") == Cached({"a": 1})
    one.close()
    other.keep_cached("shop", "k", 2, 60.0)
    assert one.cached("shop", "k") == Cached(2), "it opens again"
    one.close()
    other.close()


def test_a_file_forgets_by_itself(tmp_path: Path) -> None:
    now = [0.0]
    cache = CacheFile(tmp_path / "cache.db", tell=pytest.fail, clock=lambda: now[0])
    for number in range(FORGETS_EVERY - 1):
        cache.keep_cached("shop", f"old{number}", 1, 1.0)
    now[0] = 10.0
    cache.keep_cached("shop", "new", 1, 1.0)
    assert cache.forget_cached(1000) == 0
    cache.close()
    with sqlite3.connect(tmp_path / "cache.db") as connection:
        assert connection.execute("SELECT key FROM holdfast_cache").fetchall() == [("new",)]
    connection.close()


@pytest.mark.parametrize("content", [b"this is no database, " * 500, b"SQLite format 3\x00" + b"\xff" * 8192])
def test_a_file_that_is_no_cache_is_told_of_once_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "cache.db"
    path.write_bytes(content)
    told: list[str] = []
    cache = CacheFile(path, tell=told.append)
    assert cache.cached("shop", "k") is None
    cache.keep_cached("shop", "k", 1, 60.0)
    assert (cache.cached("shop", "k"), cache.forget_cached(10), cache.clear_cache("shop")) == (None, 0, 0)
    [said] = told
    assert str(path) in said
    assert "without a cache" in said
    assert path.read_bytes() == content
    cache.close()


def test_whoever_makes_the_file_at_the_same_time_shares_it(tmp_path: Path) -> None:
    together, rounds = 6, 15
    gate = threading.Barrier(together)

    def open_all(number: int) -> None:
        for turn in range(rounds):
            cache = CacheFile(tmp_path / f"cache{turn}.db", tell=pytest.fail, busy_seconds=DEADLINE_SECONDS)
            gate.wait()
            cache.keep_cached("shop", f"k{number}", number, 60.0)
            found = cache.cached("shop", f"k{number}")
            cache.close()
            assert found == Cached(number)

    with ThreadPoolExecutor(together) as threads:
        list(threads.map(open_all, range(together)))


@pytest.mark.parametrize("damaged", ["'{bad'", "''", "x'ff00'", "12"])
def test_a_value_that_cannot_be_read_is_not_there(tmp_path: Path, damaged: str) -> None:
    cache = CacheFile(tmp_path / "cache.db", tell=pytest.fail)
    cache.keep_cached("shop", "k", 1, 60.0)
    with sqlite3.connect(tmp_path / "cache.db") as connection:
        connection.execute(f"UPDATE holdfast_cache SET value = {damaged}")
    connection.close()
    assert cache.cached("shop", "k") == (Cached(12) if damaged == "12" else None)
    cache.keep_cached("shop", "k", 2, 60.0)
    assert cache.cached("shop", "k") == Cached(2)
    cache.close()


def test_a_file_that_breaks_later_is_told_of_once(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    told: list[str] = []
    cache = CacheFile(path, tell=told.append)
    for number in range(50):
        cache.keep_cached("shop", f"k{number}", "x" * 2000, 60.0)
    cache.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xaa" * (len(whole) - 4096))
    assert cache.cached("shop", "k1") is None
    cache.keep_cached("shop", "k1", 1, 60.0)
    assert cache.cached("shop", "k1") is None
    assert len(told) == 1
    cache.close()


def test_somebody_else_s_database_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE mine (a)")
    connection.close()
    before = path.read_bytes()
    told: list[str] = []
    cache = CacheFile(path, tell=told.append)
    cache.keep_cached("shop", "k", 1, 60.0)
    assert cache.cached("shop", "k") is None
    assert len(told) == 1
    assert "another program's" in told[0]
    assert path.read_bytes() == before
    cache.close()


def test_a_file_that_cannot_be_opened_is_told_of_once_until_it_can(tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("a file where a folder should be")
    told: list[str] = []
    cache = CacheFile(tmp_path / "folder" / "cache.db", tell=told.append)
    for _ in range(3):
        assert cache.cached("shop", "k") is None
    assert len(told) == 1
    (tmp_path / "folder").unlink()
    cache.keep_cached("shop", "k", 1, 60.0)
    assert cache.cached("shop", "k") == Cached(1)
    assert len(told) == 1
    cache.close()


def test_while_another_has_it_locked_nothing_is_found_and_nothing_is_told(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    cache = CacheFile(path, tell=pytest.fail, busy_seconds=0.0)
    cache.keep_cached("shop", "k", 1, 60.0)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    cache.keep_cached("shop", "k", 2, 60.0)
    assert cache.cached("shop", "k") == Cached(1), "readers do not wait for the writer"
    other.execute("ROLLBACK")
    other.close()
    cache.keep_cached("shop", "k", 3, 60.0)
    assert cache.cached("shop", "k") == Cached(3)
    cache.close()
