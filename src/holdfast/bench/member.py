"""A real worker, supervisor and runners, in a process of its own: `python -m holdfast.bench.member QUEUE`.

It works on the queue of the run and does nothing for the fleet: no reaping, no schedules, no retention, no row that
says it is there. The database's URL is in the environment, because everybody can read arguments.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from holdfast.domain.answers import Reaped
from holdfast.domain.events import Events
from holdfast.domain.job import DEFAULT_HEARTBEAT_SECONDS, DEFAULT_LEASE_SECONDS
from holdfast.domain.manifest import TaskInfo
from holdfast.domain.schedule import Fired
from holdfast.domain.views import WorkerRow
from holdfast.ports import Store
from holdfast.settings import read_settings
from holdfast.stores.sql_store import SqlStore
from holdfast.wiring.sql import open_database
from holdfast.worker.identity import worker_id
from holdfast.worker.options import WorkerOptions
from holdfast.worker.start import Worker
from holdfast.worker.stores import CONNECTIONS

APP = "holdfast.bench.tasks:app"


class Aside(SqlStore):
    """The store, for somebody who must leave no trace outside of a queue."""

    def reap(
        self,
        holder: str,  # noqa: ARG002
        *,
        period: float = 10.0,  # noqa: ARG002
        lease_seconds: float = DEFAULT_LEASE_SECONDS,  # noqa: ARG002
        heartbeat_seconds: float = DEFAULT_HEARTBEAT_SECONDS,  # noqa: ARG002
    ) -> Reaped:
        return Reaped(ticked=False)

    def fire_schedules(self, holder: str, *, lease_seconds: float = DEFAULT_LEASE_SECONDS) -> Fired:  # noqa: ARG002
        return Fired()

    def announce(self, tasks: Sequence[TaskInfo]) -> None:
        """Nobody else should enqueue these."""

    def keep_worker(self, row: WorkerRow) -> None:
        """Nobody looks for it."""

    def forget_workers(self, age_seconds: float = 0.0) -> int:  # noqa: ARG002
        return 0


class BenchWorker(Worker):
    def _open(self, timeout_seconds: float) -> Store:
        return Aside(open_database(self.database_url, timeout_seconds=timeout_seconds, pool_size=CONNECTIONS))

    def _begin_upkeep(self) -> None:
        """Others' jobs are others' to look after."""


def main(queue: str) -> int:
    settings = read_settings()
    options = WorkerOptions(
        app=APP,
        database_url=settings.database_url,
        database_flag=settings.database_url,
        worker_id=worker_id(queue),
        queues=(queue,),
        processes=os.cpu_count() or 1,
        notify=settings.notify,
        listen_url=settings.listen_url,
        poll_seconds=settings.poll_interval,
        grace_seconds=0.0,
    )
    return BenchWorker(options, Events()).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
