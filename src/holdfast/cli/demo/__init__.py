"""`holdfast demo`: the promises, shown in half a minute on a store of its own.

A scene is a function from the stage to what it showed; it says what happens as it happens. To show more, add a scene.
"""

from __future__ import annotations

import sys
import time
from itertools import count
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import output
from holdfast.cli.session import Json, begin
from holdfast.domain.errors import ConfigurationError
from holdfast.domain.names import check_integer
from holdfast.settings import mask_url

if TYPE_CHECKING:
    from holdfast.cli.demo.stage import Stage

COIN_EVERY_SECONDS = 4.0  # while the dashboard is served, so that there is something to see


def demo(
    context: typer.Context,
    database: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Play on this store, upgraded if need be, in queues of the demo's own."),
    ] = None,
    port: Annotated[
        int | None, typer.Option(metavar="N", help="Of the dashboard; else 8787, or any where that is taken.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="On a terminal, serve the dashboard until Ctrl-C.")
    ] = True,
    json: Json = False,
) -> None:
    """Two workers, one killed, a zombie, a breaker, and the verdict. Exit code 1 when a promise was broken."""
    # Loaded here, because every other command loads this file and needs none of them.
    from holdfast.cli.demo.theatre import theatre
    from holdfast.cli.demo.voice import Voice

    if sys.platform == "win32":
        raise ConfigurationError("The demo starts workers, and they need Linux or macOS.")
    session = begin(context, json)
    named = database or session.database
    chosen = None if port is None else check_integer(port, "--port", 0, 65_535)
    stays = wait and sys.stdout.isatty() and not session.json
    voice = Voice(silent=session.json)
    with theatre(named, chosen, voice) as stage:
        shown = _play(stage, link=named is None or stays)
        if session.json:
            seconds = round(voice.seconds(), 3)
            address = {"database": mask_url(stage.database), "url": stage.url}
            output.document({"ok": not stage.broken, "broken": stage.broken, **address, "seconds": seconds, **shown})
        else:
            _print_end(stage, shown, stays=stays, named=named is not None)
        if stays and not stage.broken:
            _serve(stage, busy=named is None)
        broken = bool(stage.broken)
    if broken:
        raise typer.Exit(1)


def _play(stage: Stage, *, link: bool) -> dict[str, Any]:
    """All scenes, or those until the story could not go on."""
    from holdfast.cli.demo import breaker, killed, opening, prices, verdict, zombie
    from holdfast.cli.demo.stage import Stalled

    shown: dict[str, Any] = {}
    sleeper = zombie.Sleeper(stage.store, stage.names.night, stage.names.own(zombie.ZOMBIE))
    try:
        shown |= opening.play(stage, link=link)
        shown |= prices.play(stage)
        shown |= killed.play(stage, sleeper.fall_asleep)
        shown |= zombie.play(stage, sleeper, shown["killed"]["taken_over_by"])
        shown |= breaker.play(stage)
        shown |= verdict.play(stage, shown["killed"]["job_id"])
    except Stalled as error:
        stage.expect(False, str(error))
    finally:
        sleeper.fall_asleep()
    return shown


def _print_end(stage: Stage, shown: dict[str, Any], *, stays: bool, named: bool) -> None:
    voice = stage.voice
    voice.line()
    if stage.broken:
        for promise in stage.broken:
            voice.line(f"Broken: {promise}", "bold red")
        return
    voice.line("Everything is as promised.", "bold green")
    voice.line("\nNext:", "bold")
    for text in _next_steps(stage, shown["killed"]["job_id"], stays=stays, kept=stays or named):
        voice.line(f"  {text}")


def _next_steps(stage: Stage, killed: str, *, stays: bool, kept: bool) -> tuple[str, str, str]:
    dashboard = f"{stage.url}, until Ctrl-C; the link above signs you in"
    elsewhere = "run `holdfast demo` on a terminal, and it goes on serving until Ctrl-C"
    look = f"`holdfast --database {mask_url(stage.database)} jobs show {killed}`"
    keep = "`holdfast demo --database sqlite:///demo.db` keeps it, to be looked at with `jobs show`"
    return (
        f"The dashboard: {dashboard if stays else elsewhere}",
        f"The job whose worker was killed: {look if kept else keep}",
        "Your own tasks: ten lines of Python, on the first screen of the README",
    )


def _serve(stage: Stage, *, busy: bool) -> None:
    """The dashboard and the worker that is left, until somebody has seen enough."""
    from holdfast.cli.demo import prices

    try:
        for number in count(201):
            time.sleep(COIN_EVERY_SECONDS)
            if busy:
                prices.ask(stage, {f"A-{number}": f"{1878 + number % 26}-S Morgan Dollar"})
    except KeyboardInterrupt:
        stage.voice.line("\nStopped. Nothing is left running.", "dim")
