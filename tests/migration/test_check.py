"""`check` says in one sentence whether the database fits, and costs next to nothing."""

import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from holdfast.domain.errors import SchemaMismatch
from holdfast.stores import guards
from holdfast.stores import upgrade as upgrade_module
from holdfast.stores.upgrade import check, current, upgrade
from tests.migration.conftest import HEAD, NEXT
from tests.migration.databases import contents, execute, renumber_guards

CHECK_WITHOUT_ALEMBIC = """
import sys
from holdfast.stores.upgrade import check
from tests.migration.databases import open_engine
check(open_engine(sys.argv[1]))
assert not [module for module in sys.modules if module.partition(".")[0] in ("alembic", "mako")]
"""


def sentence(engine: Engine) -> str:
    with pytest.raises(SchemaMismatch) as caught:
        check(engine)
    return str(caught.value)


def test_no_tables_yet(engine: Engine) -> None:
    assert sentence(engine) == "The database has no Holdfast tables yet: run `holdfast db upgrade`."


def test_older_schema(engine: Engine, next_migrations: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    upgrade(engine)
    monkeypatch.setattr(upgrade_module, "_MIGRATIONS", next_migrations)
    assert sentence(engine) == (
        f"The database is at schema {HEAD} and this Holdfast needs {NEXT}: run `holdfast db upgrade`."
    )


def test_newer_schema(engine: Engine, next_migrations: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(upgrade_module, "_MIGRATIONS", next_migrations)
        newer.setattr(upgrade_module, "COMPATIBLE_FROM", NEXT)
        upgrade(engine)
    assert sentence(engine) == (
        f"The database is at schema {NEXT} and was made by a newer Holdfast: upgrade the holdfast package."
    )


def test_other_guards(engine: Engine) -> None:
    upgrade(engine)
    renumber_guards(engine, guards.NUMBER)
    assert sentence(engine) == (
        "The triggers in the database are not those of this Holdfast: run `holdfast db upgrade`."
    )


def test_no_guards(engine: Engine) -> None:
    upgrade(engine)
    execute(engine, "DELETE FROM holdfast_meta")
    assert sentence(engine).startswith("The triggers in the database are not those of this Holdfast")


def test_a_look_creates_nothing(engine: Engine) -> None:
    sentence(engine)
    assert current(engine) is None
    if engine.dialect.name == "sqlite":
        assert not Path(str(engine.url.database)).exists()
    else:
        assert contents(engine) == []


def test_check_costs_two_queries(engine: Engine) -> None:
    upgrade(engine)
    statements: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *details: statements.append(details[2]))
    check(engine)
    assert len(statements) == 2


@pytest.mark.parametrize("database_url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.long)], indirect=True)
def test_check_does_not_import_alembic(engine: Engine, database_url: str) -> None:
    upgrade(engine)
    command = [sys.executable, "-c", CHECK_WITHOUT_ALEMBIC, database_url]
    subprocess.run(command, cwd=Path(__file__).parents[2], check=True)
