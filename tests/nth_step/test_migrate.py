"""An upgrade that fails at its n-th statement changed nothing, says so, and can be run again.

That it may be killed at each statement is shown in `tests/migration/test_interruption.py`.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine, make_url

from holdfast.domain.errors import StoreUnavailable
from holdfast.stores.postgres import open_postgres
from holdfast.stores.sqlite import open_sqlite
from holdfast.stores.upgrade import check, upgrade
from tests.migration.conftest import first_migrations, make_first
from tests.migration.databases import Contents, contents, execute, open_engine
from tests.nth_step.breaking import break_at
from tests.nth_step.cutting import CuttingProxy
from tests.nth_step.fault import Fault, Moment, Strike

__all__ = ["first_migrations", "make_first"]

MOST_STEPS = 1000
Made = Callable[[Engine], None]

failed = pytest.mark.parametrize(
    ("first", "stride"),
    [pytest.param(20, 90, id="at some steps"), pytest.param(1, 1, id="at each step", marks=pytest.mark.long)],
)


each_before = pytest.mark.parametrize("before", ["nothing", pytest.param("the first schema", marks=pytest.mark.long)])


def nothing(_engine: Engine) -> None:
    """An empty database."""


@pytest.fixture
def makers(make_first: Made) -> dict[str, Made]:
    """What is there before."""
    return {"nothing": nothing, "the first schema": make_first}


@failed
@each_before
def test_on_sqlite(tmp_path: Path, makers: dict[str, Made], before: str, first: int, stride: int) -> None:
    path, fault = tmp_path / "jobs.db", Fault()
    plain = open_engine(f"sqlite:///{path}")

    @contextmanager
    def fresh() -> Iterator[Engine]:
        plain.dispose()
        for left in tmp_path.glob("jobs.db*"):
            left.unlink()
        makers[before](plain)
        with closing(open_sqlite(f"sqlite:///{path}")) as database:
            break_at(database.engine, fault)
            yield database.engine

    fail_at_each_step(plain, fresh, fault, first, stride)
    plain.dispose()


@failed
@each_before
def test_on_postgres(postgres_database: str, makers: dict[str, Made], before: str, first: int, stride: int) -> None:
    url = make_url(postgres_database)
    plain = open_engine(postgres_database)
    with CuttingProxy((url.host or "127.0.0.1", url.port or 5432), Fault()) as proxy:

        @contextmanager
        def fresh() -> Iterator[Engine]:
            proxy.wait_until_quiet()
            execute(plain, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
            makers[before](plain)
            with closing(open_postgres(url.set(host=proxy.address[0], port=proxy.address[1]))) as database:
                yield database.engine

        fail_at_each_step(plain, fresh, proxy.fault, first, stride)
    plain.dispose()


def fail_at_each_step(
    plain: Engine, fresh: Callable[[], AbstractContextManager[Engine]], fault: Fault, first: int, stride: int
) -> None:
    with fresh() as engine:
        upgrade(engine)
        complete = contents(plain)
    hits = 0
    for step in range(first, MOST_STEPS, stride):
        hit = [_fail_at(Strike(step, moment), plain, fresh, fault, complete) for moment in Moment]
        if not any(hit):
            break
        hits += 1
    assert 1 < hits < MOST_STEPS // stride, "it was hit, and there was an end to it"


def _fail_at(
    strike: Strike, plain: Engine, fresh: Callable[[], AbstractContextManager[Engine]], fault: Fault, complete: Contents
) -> bool:
    with fresh() as engine:
        before = contents(plain)
        fault.arm(strike)
        told = _told(engine)
        hit = fault.disarm()
        if told:
            found = contents(plain)
            assert hit
            assert found == complete or _without_indexes(found) == _without_indexes(before), f"{strike}: half done"
            upgrade(engine)
        assert contents(plain) == complete, strike
        check(engine)
    return hit


def _told(engine: Engine) -> bool:
    try:
        upgrade(engine)
    except StoreUnavailable:
        return True
    return False


def _without_indexes(found: Contents) -> Contents:
    """Those on large tables are built before anything else, and may stay (`migrations/ahead.py`)."""
    return [row for row in found if row[0] not in ("index", "relation")]
