"""`holdfast db upgrade` and `holdfast db current`."""

from pathlib import Path

from sqlalchemy import make_url

from holdfast.stores.upgrade import head
from tests.acceptance.command_line import CommandLine, InProcess


def test_upgrade_makes_the_tables_and_current_says_so(tmp_path: Path, empty_database: str) -> None:
    holdfast = CommandLine(tmp_path, empty_database)
    here = InProcess(tmp_path, empty_database)
    shown = make_url(empty_database).render_as_string(hide_password=True)

    first = holdfast("db", "upgrade", "--json").succeeded()
    assert first.document == {"database": shown, "before": None, "after": head(), "newer": None}
    assert here("db", "upgrade", "--json").succeeded().document["before"] == head()
    assert f"schema {head()}" in holdfast("db", "upgrade").succeeded().out

    current = holdfast("db", "current", "--json").succeeded().document
    fits = {"ok": True, "problem": None, "newer": None}
    assert current == {"database": shown, "current": head(), "needed": head(), **fits}
    in_words = holdfast("db", "current").succeeded()
    assert f"schema {head()}" in in_words.out
    assert f"store: {shown}" in in_words.err


def test_a_password_is_in_no_output(tmp_path: Path, postgres_database: str) -> None:
    url = make_url(postgres_database).set(password="hunter2 with spaces/and:more")
    holdfast = InProcess(tmp_path, url.render_as_string(hide_password=False))

    for command in (("db", "upgrade"), ("db", "current", "--json"), ("enqueue", "add"), ("demo", "--json")):
        done = holdfast(*command)
        assert "hunter2" not in done.out + done.err
