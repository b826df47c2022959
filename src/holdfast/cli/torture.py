"""`holdfast torture`"""

from __future__ import annotations

import secrets
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import output
from holdfast.cli.session import Json, Session, begin, explained
from holdfast.domain.errors import ConfigurationError
from holdfast.domain.names import check_integer
from holdfast.settings import CONTROL_PLANES, mask_url

if TYPE_CHECKING:
    from holdfast.torture.ground import Ground
    from holdfast.torture.results import Result
    from holdfast.torture.stage import Stage

LEASE_SECONDS = 2.0
MOST_MINUTES = 24 * 60.0
PAGE = "holdfast-torture.html"
_VIOLATION, _INTERRUPTED = 1, 130


def torture(
    context: typer.Context,
    minutes: Annotated[float, typer.Option(metavar="N", help="How long faults are injected.")] = 1.0,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Which faults in which order; else a new one.")] = None,
    faults: Annotated[str, typer.Option(metavar="a,b", help="Kinds of faults, `all` or `none`.")] = "all",
    postgres: Annotated[bool, typer.Option("--postgres", help="On a Postgres that is started for it.")] = False,
    rate: Annotated[int, typer.Option(metavar="N", help="Jobs a second that clients enqueue.")] = 80,
    patience: Annotated[
        float, typer.Option(metavar="N", help="Times what a recovery may take, on a machine that is busy otherwise.")
    ] = 1.0,
    report: Annotated[Path, typer.Option(metavar="FILE", help="Where the page goes.")] = Path(PAGE),
    json: Json = False,
) -> None:
    """Kill, freeze, cut off and starve a whole fleet for a while, then prove that no job was lost or doubled.

    It works on a ledger of its own: a database made beside the one that --database names, a file beside an SQLite file
    that it names, or, without a name, throwaway ones. It exits 1 on any violation, with the seed and the shortest
    history that shows it.
    """
    if sys.platform != "linux":
        raise ConfigurationError(
            "Processes are frozen, tracked and tied to each other as only Linux can: run it there."
        )
    session = begin(context, json)
    if not 0 < minutes <= MOST_MINUTES:
        raise ConfigurationError(f"--minutes must be more than 0 and at most {MOST_MINUTES:.0f}, got {minutes:g}")
    check_integer(rate, "--rate", 1, 10_000)
    if not 0 < patience <= 1_000:
        raise ConfigurationError(f"--patience must be more than 0 and at most 1000, got {patience:g}")
    chosen = secrets.randbelow(1_000_000) if seed is None else check_integer(seed, "--seed", 0, 2**63 - 1)
    result = _run(session, postgres, minutes, chosen, faults, rate, patience)
    if result is None:
        raise typer.Exit(_INTERRUPTED)
    _tell(session, result, report)
    if not result.ok:
        raise typer.Exit(_VIOLATION)


def _run(
    session: Session, postgres: bool, minutes: float, seed: int, faults: str, rate: int, patience: float
) -> Result | None:
    """None when somebody wanted it to end before."""
    from holdfast.torture.faults import choose
    from holdfast.torture.running import Run, RunOptions
    from holdfast.torture.setting import opened

    kinds = choose(faults)
    mixed = min(6.0, rate / 5)
    named = "" if session.database is None else f" --database {mask_url(session.settings().database_url)}"
    command = f"holdfast{named} torture --minutes {minutes:g} --seed {seed} --faults {faults} --rate {rate}"
    options = RunOptions(
        seed=seed,
        seconds=60 * minutes,
        kinds=kinds,
        lease_seconds=LEASE_SECONDS,
        command=command + (" --postgres" if postgres else ""),
        patience=patience,
    )
    told = _telling(session)
    with (
        explained(),
        opened(
            _ground(session, postgres),
            seed=seed,
            lease_seconds=LEASE_SECONDS,
            bulk_per_second=rate - mixed,
            mixed_per_second=mixed,
        ) as setting,
        _stopping(setting.stage),
    ):
        told(f"seed {seed}, on {setting.stage.ground.masked}")
        return Run(setting, options, told).run()


def _ground(session: Session, postgres: bool) -> Ground:
    from sqlalchemy import make_url

    from holdfast.torture.ground import postgres_at, postgres_of_its_own, sqlite_file

    if postgres:
        if session.database is not None:
            raise ConfigurationError("--postgres starts a server of its own, and --database names one: choose.")
        return postgres_of_its_own()
    if session.database is None:
        return sqlite_file()
    url = session.settings().database_url
    if url.startswith(CONTROL_PLANES):
        raise ConfigurationError("A control plane is not a database: name one, or none at all.")
    if url.startswith("postgres"):
        return postgres_at(url)
    return sqlite_file(beside=Path(make_url(url).database or "holdfast.db").absolute())


@contextmanager
def _stopping(stage: Stage) -> Iterator[None]:
    """Ctrl-C and a `kill` end it in good order: nothing is left running, or mounted."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        stage.stop.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _telling(session: Session) -> Callable[[str], None]:
    if session.json:
        return lambda _what: None
    return lambda what: output.remark(f"torture: {what}")


def _tell(session: Session, result: Result, report: Path) -> None:
    from holdfast.cli.torture_report import print_report
    from holdfast.torture.page import page
    from holdfast.torture.report import document

    report.write_text(page(result), encoding="utf-8")
    if session.json:
        output.document(document(result))
        return
    print_report(result)
    output.line(f"The page: {report}")
