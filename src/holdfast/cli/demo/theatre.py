"""Where the demo is played: a folder that is gone afterwards, a store, the marketplaces and a control plane.

Never the configured store unless it was named, and nothing of the configuration: what is set for real work must not
change the story, and the story leaves jobs behind.
"""

from __future__ import annotations

import signal
import socket
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from holdfast.cli.demo import samples
from holdfast.cli.demo.crew import SERVE, Crew
from holdfast.cli.demo.names import SOURCES, VARIABLE, Names
from holdfast.cli.demo.stage import GRACE, LEASE_SECONDS, Stage
from holdfast.cli.demo.voice import Voice
from holdfast.cli.session import check_lasting, explained
from holdfast.domain.errors import ConfigurationError, HoldfastError
from holdfast.domain.tokens import NewToken, Scope
from holdfast.settings import CONTROL_PLANES, Settings, mask_url, read_settings

if TYPE_CHECKING:
    from examples.price_watch.market_server import Market, Plan
    from holdfast.serve.running import ControlPlane
    from holdfast.stores.sql_store import SqlStore

TOKEN_SECONDS = 3600.0
TITLE = "Holdfast in half a minute. Everything below really happens, on this machine."
OWN_STORE = "an SQLite file that is gone afterwards"
SEED = 1
STOP_SECONDS = 1.0  # for who looks at the dashboard when it ends


@contextmanager
def theatre(database: str | None, port: int | None, voice: Voice) -> Iterator[Stage]:
    names = Names() if database is None else Names(f"demo-{uuid.uuid4().hex[:6]}-")
    with _signals(), ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-demo-")))
        (folder / "pyproject.toml").touch()  # the nearest one, for everything that runs here
        settings = _settings(database, folder)
        # Before anything is said: a command that cannot listen where it was told should say nothing else.
        listener = None if port is None else stack.enter_context(_listener(port))
        voice.title(TITLE, f"Store: {OWN_STORE if database is None else mask_url(database)}")
        store = stack.enter_context(_store(settings, upgraded=database is not None))
        token = stack.enter_context(_token(store, names.own(GRACE)))
        market = stack.enter_context(_marketplaces())
        common = {
            "LEASE_SECONDS": f"{LEASE_SECONDS:g}",
            "HOLDFAST_ARTIFACTS": settings.artifacts_url,
            "PRICE_WATCH_MARKETS": market.url,
            VARIABLE: names.prefix,
        }
        crew = Crew(folder, common)
        control = stack.enter_context(_control_plane(settings, listener or _listener(None), crew.log(SERVE)))
        stack.callback(crew.close)
        stack.callback(_ignore_interrupts)  # the first thing on the way out: nothing is to be left half stopped
        yield Stage(store, settings.database_url, control.url, token, names, crew, market, voice)


def _settings(database: str | None, folder: Path) -> Settings:
    url = f"sqlite:///{folder / 'demo.db'}" if database is None else _anchored(database)
    flags = {
        "database_url": url,
        "artifacts_url": str(folder / "artifacts"),
        "lease_seconds": LEASE_SECONDS,
        "grace_seconds": STOP_SECONDS,
    }
    settings = read_settings(flags, environment={}, directory=folder)
    check_lasting(settings.database_url)
    if settings.database_url.startswith(CONTROL_PLANES):
        raise ConfigurationError("The demo brings a control plane of its own: name a database, or none at all.")
    return settings


def _anchored(url: str) -> str:
    """A relative file is meant from here; the workers run elsewhere."""
    scheme, slashes, path = url.partition(":///")
    if not scheme.startswith("sqlite") or not path or path.startswith(("/", ":")):
        return url
    return f"{scheme}{slashes}{Path.cwd() / path}"


@contextmanager
def _store(settings: Settings, *, upgraded: bool) -> Iterator[SqlStore]:
    from holdfast.stores.upgrade import upgrade
    from holdfast.wiring.sql import open_database, open_store

    with explained():
        if upgraded:
            with closing(open_database(settings.database_url)) as database:
                upgrade(database.engine)
        with closing(open_store(settings.database_url)) as store:
            yield store


def _listener(port: int | None) -> socket.socket:
    from holdfast.cli.beside import take_port

    return take_port(port)


@contextmanager
def _token(store: SqlStore, name: str) -> Iterator[str]:
    """For the worker that has nothing else; it is worth nothing afterwards."""
    issued = store.create_token(NewToken(name, (Scope.WORKER, Scope.CLIENT), None, TOKEN_SECONDS))
    try:
        yield issued.text
    finally:
        with suppress(HoldfastError):
            store.revoke_token(name)


@contextmanager
def _marketplaces() -> Iterator[Market]:
    """On loopback, in this process. One asks for peace early on; nothing else goes wrong unless a scene says so."""
    with samples.importable():
        from examples.price_watch.market_server import Throttle, running

        planned: Plan = {SOURCES[0]: {3: Throttle(1)}}
        with running(SEED, planned) as market:
            yield market


@contextmanager
def _control_plane(settings: Settings, listener: socket.socket, log: Path) -> Iterator[ControlPlane]:
    from holdfast.cli.serve import HOST, serve_settings
    from holdfast.domain.events import Events
    from holdfast.observe.logs import LogSubscriber, configure
    from holdfast.serve.running import ControlPlane

    with log.open("w", encoding="utf-8", buffering=1) as stream:
        events = Events(LogSubscriber(configure("json", "info", stream)))
        control = ControlPlane(serve_settings(settings, settings.database_url, HOST, 0), events, listener)
        try:
            control.start()
            yield control
        finally:
            control.stop()


@contextmanager
def _signals() -> Iterator[None]:
    """A terminal that is closed, or a `kill`, ends the demo as orderly as Ctrl-C."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers[1:]:
        signal.signal(number, _leave)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


def _ignore_interrupts() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
