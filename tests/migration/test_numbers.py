"""Guards have a number that only grows, and an older release leaves alone what a newer one has installed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine

from holdfast.domain.errors import SchemaMismatch
from holdfast.stores import guards
from holdfast.stores import upgrade as upgrade_module
from holdfast.stores.upgrade import check, current, describe_newer, upgrade
from tests.acceptance.command_line import InProcess
from tests.migration.conftest import HEAD, NEXT
from tests.migration.databases import contents, drop_a_trigger, execute, renumber_guards

# The guards of each release, by number. Add a row when a release is made; never change one.
RELEASED = {1: {"postgresql": "10e0e9ef8690087e", "sqlite": "5babef9b566166cb"}}

OURS = "only a finished job is deleted"
THEIRS = "only a job that has finished is deleted"


@contextmanager
def next_guards() -> Iterator[None]:
    """A release whose guards differ, on the same schema."""
    original = guards.statements
    with pytest.MonkeyPatch.context() as newer:
        newer.setattr(guards, "NUMBER", guards.NUMBER + 1)
        newer.setattr(guards, "statements", lambda dialect: [text.replace(OURS, THEIRS) for text in original(dialect)])
        yield


@contextmanager
def next_release(folder: Path, compatible_from: str = HEAD) -> Iterator[None]:
    """One migration ahead as well."""
    with next_guards(), pytest.MonkeyPatch.context() as newer:
        newer.setattr(upgrade_module, "_MIGRATIONS", folder)
        newer.setattr(upgrade_module, "COMPATIBLE_FROM", compatible_from)
        yield


@pytest.mark.parametrize("dialect", ["postgresql", "sqlite"])
def test_changed_guards_have_a_new_number(dialect: str) -> None:
    """If this fails, raise guards.NUMBER: a release with the same number would install its guards over these."""
    released = RELEASED.get(guards.NUMBER)
    assert released[dialect] == guards.fingerprint(dialect) if released else max(RELEASED) < guards.NUMBER


def test_lower_number_is_not_installed_over_a_higher_one(engine: Engine) -> None:
    with next_guards():
        upgrade(engine)
    before = contents(engine)
    assert THEIRS in repr(before)
    assert upgrade(engine) == (HEAD, HEAD)
    assert contents(engine) == before
    check(engine)


def test_lower_number_does_not_repair_a_higher_one(engine: Engine) -> None:
    """It has only its own guards to install."""
    with next_guards():
        upgrade(engine)
        complete = contents(engine)
        drop_a_trigger(engine)
        before = contents(engine)
    upgrade(engine)
    assert contents(engine) == before
    with next_guards():
        upgrade(engine)
    assert contents(engine) == complete


def test_next_schema_that_includes_this_release_is_accepted(engine: Engine, next_migrations: Path) -> None:
    upgrade(engine)
    assert describe_newer(engine) is None
    with next_release(next_migrations):
        assert upgrade(engine) == (HEAD, NEXT)
        before = contents(engine)
    check(engine)
    assert upgrade(engine) == (NEXT, NEXT)
    assert contents(engine) == before
    assert describe_newer(engine) == (
        f"The database is at schema {NEXT}, guards {guards.NUMBER + 1}, of a newer Holdfast;"
        f" this one (schema {HEAD}, guards {guards.NUMBER}) runs on it."
    )


def test_contracted_schema_is_refused(engine: Engine, next_migrations: Path) -> None:
    with next_release(next_migrations, compatible_from=NEXT):
        upgrade(engine)
        before = contents(engine)
    for operation in (check, upgrade):
        with pytest.raises(SchemaMismatch, match=rf"schema {NEXT} .* newer Holdfast: upgrade the holdfast package\.$"):
            operation(engine)
    assert contents(engine) == before


def test_contracted_guards_are_refused(engine: Engine) -> None:
    """A release may end the support of another one without a migration only by the record."""
    with next_guards(), pytest.MonkeyPatch.context() as newer:
        newer.setattr(upgrade_module, "COMPATIBLE_FROM", NEXT)
        upgrade(engine)
    with pytest.raises(SchemaMismatch, match="newer Holdfast"):
        check(engine)


def test_older_schema_with_newer_guards_is_refused(
    engine: Engine, next_migrations: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To migrate it, this release would have to install its lower guards."""
    upgrade(engine)
    renumber_guards(engine, guards.NUMBER + 1)
    before = contents(engine)
    monkeypatch.setattr(upgrade_module, "_MIGRATIONS", next_migrations)
    with pytest.raises(SchemaMismatch, match="newer Holdfast"):
        upgrade(engine)
    assert (contents(engine), current(engine)) == (before, HEAD)


@pytest.mark.parametrize("record", ["nonsense", "[]", "{}", '{"schema": "0008"}'])
def test_record_that_cannot_be_read_counts_as_none(record: str, engine: Engine) -> None:
    upgrade(engine)
    execute(engine, f"UPDATE holdfast_meta SET value = '{record}' WHERE key = 'installed'")
    with pytest.raises(SchemaMismatch, match="run `holdfast db upgrade`"):
        check(engine)
    upgrade(engine)
    check(engine)


def test_command_of_an_older_release_changes_nothing_and_says_so(
    engine: Engine, database_url: str, next_migrations: Path, tmp_path: Path
) -> None:
    with next_release(next_migrations):
        upgrade(engine)
    before, holdfast = contents(engine), InProcess(tmp_path, database_url)
    said = describe_newer(engine)
    assert holdfast("db", "upgrade").succeeded().out == f"{said} Nothing was changed.\n"
    assert holdfast("db", "current").succeeded().out == f"{said}\n"
    document = holdfast("db", "upgrade", "--json").succeeded().document
    assert (document["before"], document["after"], document["newer"]) == (NEXT, NEXT, said)
    assert contents(engine) == before
    doctor = holdfast("doctor", "--json").document
    assert str(said) in repr(doctor)
    assert "triggers are missing" not in repr(doctor)
