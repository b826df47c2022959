"""`holdfast top`"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from holdfast.cli import output
from holdfast.cli.session import Json, begin, opened
from holdfast.domain.errors import InvalidInput
from holdfast.settings import mask_url

SHORTEST_INTERVAL = 0.1


def top(
    context: typer.Context,
    interval: Annotated[float, typer.Option(metavar="SECONDS", help="How often to look.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one frame and end; so it is without a terminal.")] = False,
    json: Json = False,
) -> None:
    """The fleet as it works, live: throughput, queues, workers, what runs, sources, what needs attention."""
    from holdfast.cli.top.frame import Standing, frame
    from holdfast.cli.top.screen import watch
    from holdfast.cli.top.sight import Watch

    session = begin(context, json)
    if not interval >= SHORTEST_INTERVAL:
        raise InvalidInput("--interval", f"must be at least {SHORTEST_INTERVAL:g} seconds, got {interval:g}")
    settings = session.settings()
    console = output.console()
    standing = Standing(mask_url(settings.database_url), unicode=output.draws_unicode(console))
    with opened(settings) as store:
        looking = Watch(store)
        if session.json:
            output.document({"store": standing.store, **looking.look().document()})
        elif once or not sys.stdout.isatty() or console.is_dumb_terminal:
            for line in frame(looking.look(), standing, console.width):
                console.print(line, soft_wrap=True)
        else:
            try:
                watch(looking.look, console, standing, interval)
            except KeyboardInterrupt:
                return
