"""`holdfast db upgrade` and `holdfast db current`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from holdfast.cli import output
from holdfast.cli.progress_shown import shown
from holdfast.cli.session import Json, begin, opened_database
from holdfast.domain.errors import SchemaMismatch
from holdfast.settings import mask_url

if TYPE_CHECKING:
    from holdfast.stores.database import Database


def upgrade(context: typer.Context, json: Json = False) -> None:
    """Bring the tables to what this Holdfast needs; create them where there are none."""
    from holdfast.stores import upgrade as schema

    session = begin(context, json)
    settings = session.settings()
    with (
        opened_database(settings, create=True) as database,
        shown("bringing the tables up to date", silent=session.json),
    ):
        before, after = schema.upgrade(database.engine)
        newer = schema.describe_newer(database.engine)
    if session.json:
        answer = {"before": before, "after": after, "newer": newer}
        output.document({"database": mask_url(settings.database_url), **answer})
    elif newer is not None:
        output.line(f"{newer} Nothing was changed.")
    elif before == after:
        output.line(f"The database is at schema {after}, which is what this Holdfast needs.")
    else:
        output.line(f"Upgraded from {f'schema {before}' if before else 'an empty database'} to schema {after}.")


def current(context: typer.Context, json: Json = False) -> None:
    """Say which schema the database has. Exit code 1 when this Holdfast does not run on it."""
    from holdfast.stores import upgrade as schema

    session = begin(context, json)
    settings = session.settings()
    with opened_database(settings, create=False) as database:
        found = schema.current(database.engine)
        problem = _problem(database)
        newer = schema.describe_newer(database.engine)
    if session.json:
        answer = {"current": found, "needed": schema.head(), "ok": problem is None, "problem": problem, "newer": newer}
        output.document({"database": mask_url(settings.database_url), **answer})
    else:
        output.line(problem or newer or f"The database is at schema {found}, which is what this Holdfast needs.")
    if problem is not None:
        raise typer.Exit(1)


def _problem(database: Database) -> str | None:
    from holdfast.stores import upgrade as schema

    try:
        schema.check(database.engine)
    except SchemaMismatch as mismatch:
        return str(mismatch)
    return None
