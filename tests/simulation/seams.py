"""Where the operating system is put in the place of the real one: names in modules, for as long as a history runs.

No product code knows of it. Everything that is random or reads a clock is here, so that one seed is one history.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from holdfast.periodic import desk, lazy_store, upkeep
from holdfast.runners import process
from holdfast.stores import claimable, ids, known_limits, sqlite
from holdfast.stores.verbs import breaker, claim_named, claim_requests, claiming, enqueueing, holds, rolling
from holdfast.transports.redis_streams import link, publisher
from holdfast.transports.redis_streams import store as stream_store
from holdfast.transports.redis_streams.breaker import Breaker
from holdfast.transports.redis_streams.looks import Looks
from holdfast.worker import bell, orphans, showing, start, supervisor, waiting
from holdfast.worker.supervisor import Supervisor
from tests.simulation.machine import Future, Machine
from tests.simulation.redis_server import Redis


def _replacements(machine: Machine, redis: Redis) -> list[tuple[Any, str, Any]]:
    time, os, moments, threads = machine.time(), machine.os(), machine.datetime(), machine.threading()
    sockets: Any = type("Sockets", (), {"socketpair": staticmethod(machine.socketpair)})
    timed = (
        ids, known_limits, claiming, claim_named, enqueueing, breaker, holds, sqlite, rolling, upkeep, supervisor,
    )  # fmt: skip
    return [
        *((module, "time", time) for module in timed),
        *((module, "os", os) for module in (ids, claiming, claim_requests)),
        *((module, "datetime", moments) for module in (claimable, stream_store, showing)),
        (ids, "_last_millisecond", 0),
        (ids, "_counter", 0),
        (desk, "threading", threads),
        (desk, "queue", machine.queues()),
        (lazy_store, "threading", threads),
        (lazy_store, "Future", lambda: Future(machine.world)),
        (bell, "socket", sockets),
        (bell, "signal", machine.signals()),
        (waiting, "selectors", machine.selecting()),
        (process, "socket", sockets),
        (process, "subprocess", machine.subprocesses()),
        (process, "kill_tree", lambda _pid: None),  # whatever a runner started; the runner itself is killed by its own
        (process, "resident_below", lambda _pid: 0),
        (showing, "resident", lambda _pid: 0),
        (orphans, "processes", list),
        (supervisor, "signal", machine.signals()),
        (supervisor, "children", lambda _pid: []),
        (supervisor, "kill_strays", lambda _pid, _known: []),
        (supervisor, "prctl", type("Nothing", (), {"set_child_subreaper": staticmethod(lambda: None)})),
        (start, "Supervisor", partial(Supervisor, clock=machine.seconds)),
        (publisher, "threading", threads),
        (publisher, "atexit", type("Never", (), {"register": lambda *_: None, "unregister": lambda *_: None})()),
        (link, "connect", lambda _url, _timeout: redis.connection()),
        (link, "Breaker", partial(Breaker, clock=machine.seconds)),
        (stream_store, "Looks", partial(Looks, clock=machine.seconds)),
    ]


@contextmanager
def in_place(machine: Machine, redis: Redis, seed: int) -> Iterator[None]:
    replaced = _replacements(machine, redis)
    before = [(module, name, getattr(module, name)) for module, name, _value in replaced]
    chance = random.getstate()
    random.seed(seed)
    try:
        for module, name, value in replaced:
            setattr(module, name, value)
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
        random.setstate(chance)
