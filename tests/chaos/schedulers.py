"""Five schedulers over one store, killed and replaced at random.

``python -m tests.chaos.schedulers URL BASE TICKS KILLS``

This process forks them, which it may because it has no threads and no connection open when it does, so one takes
milliseconds to start and many can be killed. It ends when so many have fired, or more.

The store's clock runs two hundred times faster than the host's from BASE on, so that a thousand ticks take seconds.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from holdfast.runners.prctl import set_parent_death_signal
from holdfast.stores.database import utc_now
from holdfast.stores.postgres import open_postgres
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.sqlite import open_sqlite
from tests.chaos.databases import is_sqlite, query
from tests.servers.waiting import wait_until

SPEED = 200
SCHEDULERS = 5
COUNT = "SELECT count(*) FROM holdfast_schedule_ticks"


@contextmanager
def fast_store(url: str, base: datetime) -> Iterator[SqlStore]:
    def fast() -> datetime:
        return base + (utc_now() - base) * SPEED

    store = SqlStore(open_sqlite(url, clock=fast) if is_sqlite(url) else open_postgres(url))
    try:
        yield store
    finally:
        store.close()


def fire_for_ever(name: str, url: str, base: datetime) -> None:
    chance = random.Random()
    with fast_store(url, base) as store:
        while True:
            fired = store.fire_schedules(name)
            assert fired.failures == (), fired.failures
            time.sleep(chance.uniform(0.0, 0.004))


def start(name: str, url: str, base: datetime) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        set_parent_death_signal(signal.SIGKILL)
        fire_for_ever(name, url, base)
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), f"a scheduler had ended by itself: {status}"


def wait_for_ticks(url: str, more: int) -> None:
    """Counted from now. On a slow machine many ticks are due before the first scheduler has started."""
    [(before,)] = query(url, COUNT)
    wait_until(lambda: query(url, COUNT)[0][0] >= before + more, what=f"{more} more ticks")


def main(url: str, base: datetime, ticks: int, kills: int) -> None:
    chance = random.Random(kills)
    alive = [start(f"scheduler-{number}", url, base) for number in range(SCHEDULERS)]
    for number in range(kills):
        wait_for_ticks(url, ticks // (kills + 1))
        kill(alive.pop(chance.randrange(SCHEDULERS)))
        alive.append(start(f"scheduler-{SCHEDULERS + number}", url, base))
    wait_for_ticks(url, ticks - kills * (ticks // (kills + 1)))
    for pid in alive:
        kill(pid)


if __name__ == "__main__":
    main(sys.argv[1], datetime.fromisoformat(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
