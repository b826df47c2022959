"""`holdfast demo`: the promises, shown in a few seconds on a store of its own.

A scene is a function from the stage to what it showed; it says what happens as it happens. To show more, add a scene.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.cli import output
from holdfast.cli.session import Json, Session, begin, opened, opened_database
from holdfast.settings import Settings, mask_url


def demo(
    context: typer.Context,
    database: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Play on this store, upgraded if need be, in queues of the demo's own."),
    ] = None,
    json: Json = False,
) -> None:
    """A hundred jobs, two workers, a zombie and the verdict. Exit code 1 when a promise was broken."""
    # Loaded here, because every other command loads this file and needs none of them.
    from holdfast.cli.demo import hundred, verdict, zombie
    from holdfast.cli.demo.stage import Stage

    session = begin(context, json)
    started = time.monotonic()
    with _theatre(database or session.database) as settings, opened(settings, create=True, named=True) as store:
        stage = Stage(store, settings.database_url, f"demo-{uuid.uuid4().hex[:8]}", silent=session.json)
        shown: dict[str, Any] = {}
        for play in (hundred.play, zombie.play, verdict.play):
            shown |= play(stage)
    broken = stage.broken_promises
    if session.json:
        address = mask_url(settings.database_url)
        seconds = round(time.monotonic() - started, 3)
        output.document({"ok": not broken, "broken": broken, "database": address, "seconds": seconds, **shown})
    else:
        _print_end(broken)
    if broken:
        raise typer.Exit(1)


@contextmanager
def _theatre(database: str | None) -> Iterator[Settings]:
    """The store to play on. Never the configured one unless it was named: the demo leaves jobs behind."""
    if database is not None:
        settings = Session(database).settings()
        _upgrade(settings)
        yield settings
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        yield Session(f"sqlite:///{Path(folder) / 'demo.db'}").settings()


def _upgrade(settings: Settings) -> None:
    from holdfast.stores.upgrade import upgrade

    with opened_database(settings, create=True, named=False) as opened_one:
        upgrade(opened_one.engine)


def _print_end(broken: list[str]) -> None:
    for promise in broken:
        output.line(f"Broken: {promise}", "red")
    if not broken:
        output.line("Everything is as promised.", "green")
