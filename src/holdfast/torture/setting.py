"""Everything that a run needs, opened in order and closed in the other: ledger, Redis, proxies, tokens, a folder."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from holdfast.domain.tokens import NewToken, Scope
from holdfast.runners import prctl
from holdfast.runners.descendants import kill_strays
from holdfast.throwaway.process import ServerStartError, free_port
from holdfast.throwaway.valkey import ValkeyServer
from holdfast.torture.crew import Crew
from holdfast.torture.faults.ways import TO_DATABASE, TO_REDIS
from holdfast.torture.ground import Ground
from holdfast.torture.notes import Notebook
from holdfast.torture.proxy import FaultProxy
from holdfast.torture.roles import PLANES, Cast
from holdfast.torture.skewed import SkewedClock
from holdfast.torture.stage import Stage
from holdfast.wiring.sql import open_store

ANSWER_SECONDS = 5.0
POOL_SIZE = 10
TOKEN_SECONDS = 7 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    stage: Stage
    notes: Path
    folder: Path
    born: float
    redis_version: str  # empty without one


@contextmanager
def opened(
    ground: Ground, *, seed: int, lease_seconds: float, bulk_per_second: float, mixed_per_second: float
) -> Iterator[Setting]:
    """The folder with everybody's logs and notes is gone afterwards."""
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="holdfast-torture-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        notes = folder / "notes"
        notes.mkdir()
        (folder / "pyproject.toml").touch()  # the nearest one, for everybody who runs here
        stack.enter_context(closing(ground))
        ground.prepare()
        store = stack.enter_context(
            closing(open_store(ground.observing_url, timeout_seconds=ANSWER_SECONDS, pool_size=POOL_SIZE))
        )
        token = store.create_token(NewToken("torture", (Scope.WORKER, Scope.CLIENT), None, TOKEN_SECONDS)).text
        valkey = _valkey(stack)
        chance = random.Random(f"ways-{seed}")

        def way(target: tuple[str, int]) -> FaultProxy:
            return stack.enter_context(FaultProxy(target, seed=chance.getrandbits(32)))

        ports = [free_port() for _ in range(PLANES)]
        planes = [way(("127.0.0.1", port)) for port in ports]
        ways = {f"control plane {number}": plane for number, plane in enumerate(planes, 1)}
        if ground.is_postgres:
            ways[TO_DATABASE] = way(ground.address)
        if valkey is not None:
            ways[TO_REDIS] = way(("127.0.0.1", valkey.port))
        redis = None if valkey is None else f"redis://127.0.0.1:{ways[TO_REDIS].port}"
        clocks = {name: SkewedClock(folder / f"{name}.clock") for name in _skewed(ground, with_redis=redis is not None)}
        cast = Cast(
            folder=folder,
            notes=notes,
            seed=seed,
            lease_seconds=lease_seconds,
            database_url=ground.through(ways[TO_DATABASE].address) if ground.is_postgres else ground.url,
            plane_ports=ports,
            plane_urls=[f"http://127.0.0.1:{plane.port}" for plane in planes],
            token=token,
            redis_url=None if redis is None else f"{redis}/1",
            rq_url=None if redis is None else f"{redis}/0",
            bulk_per_second=bulk_per_second,
            mixed_per_second=mixed_per_second,
            clocks=clocks,
        )
        born = time.monotonic()
        crew = Crew(folder, cast.roles(), born)
        prctl.set_child_subreaper()  # what a killed member leaves behind falls to us
        stack.callback(lambda: kill_strays(os.getpid(), []))
        stack.callback(crew.close)
        notebook = stack.enter_context(closing(Notebook(notes, "torture")))
        stage = Stage(ground, store, crew, ways, valkey, clocks, notebook, lease_seconds)
        yield Setting(stage=stage, notes=notes, folder=folder, born=born, redis_version=_redis_version(valkey))


def _skewed(ground: Ground, *, with_redis: bool) -> list[str]:
    """Whose clocks may jump. A file's processes are on one machine, whose clock is the store's."""
    if not ground.is_postgres:
        return ["worker-http-1"]
    return ["worker-database-1", "worker-http-1", *(["worker-redis-1"] if with_redis else [])]


def _valkey(stack: ExitStack) -> ValkeyServer | None:
    """Without a server, or without the libraries, two doors stay shut, and the report says so."""
    if find_spec("redis") is None or find_spec("rq") is None:
        return None
    try:
        return stack.enter_context(ValkeyServer())
    except ServerStartError:
        return None


def _redis_version(valkey: ValkeyServer | None) -> str:
    if valkey is None:
        return ""
    import redis

    with redis.Redis.from_url(valkey.url) as client:
        told = client.info("server")
    return str(told.get("valkey_version") or told["redis_version"])
