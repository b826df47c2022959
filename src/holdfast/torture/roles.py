"""Who takes part: workers of four doors, control planes, clients; and the command line and environment of each."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.settings import neutral_environment
from holdfast.torture import tasks
from holdfast.torture.crew import CLIENT, DATABASE, HTTP, PLANE, REDIS, RQ, Role
from holdfast.torture.errand import Errand
from holdfast.torture.notes import ANCHOR, anchor
from holdfast.torture.skewed import SkewedClock
from holdfast.torture.stage import probe_queue

APP = "holdfast.torture.tasks:app"
PLANES = 2
GRACE_SECONDS = 1.0
POLL_SECONDS = 0.5
_HOLDFAST = (sys.executable, "-m", "holdfast")

Started = tuple[Sequence[str], Mapping[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """What the members of a crew are told. URLs lead through the proxies, where there are any."""

    folder: Path
    notes: Path
    seed: int
    lease_seconds: float
    database_url: str
    plane_ports: Sequence[int]  # of the servers themselves
    plane_urls: Sequence[str]
    token: str
    redis_url: str | None  # of the streams
    rq_url: str | None
    bulk_per_second: float
    mixed_per_second: float
    clocks: Mapping[str, SkewedClock]  # by member

    def roles(self) -> list[Role]:
        found = [
            *(self._worker(f"worker-database-{number}", DATABASE, self._database()) for number in (1, 2)),
            self._worker("worker-http-1", HTTP, self._http()),
            *(self._plane(number) for number in range(PLANES)),
            self._client("client-1", "holdfast.torture.client"),
            self._client("contract-1", "holdfast.torture.contract_client"),
        ]
        if self.rq_url is not None:
            found += [self._worker("worker-redis-1", REDIS, self._redis()), self._rq("rq-1")]
        return found

    # one method a kind

    def _worker(self, name: str, door: str, leading: Mapping[str, str]) -> Role:
        queues = ",".join((probe_queue(door), *tasks.QUEUES))
        flags = ["--queues", queues, "--processes", "1", "--slots", "3", "--grace", f"{GRACE_SECONDS}s"]
        command = [*_HOLDFAST, "worker", APP, *flags, "--log-level", "warning"]
        return Role(name, door, lambda _life: self._started(name, command, leading))

    def _rq(self, name: str) -> Role:
        assert self.rq_url is not None
        program = str(Path(sys.executable).with_name("rq"))
        queues = [probe_queue(RQ), tasks.MIXED]
        command = [program, "worker", "--url", self.rq_url, "--quiet", "-c", "holdfast.rq.preload", *queues]
        known = {"DATABASE_URL": self.database_url, "HOLDFAST_APP": APP}
        return Role(name, RQ, lambda _life: self._started(name, command, known))

    def _plane(self, number: int) -> Role:
        name = f"control-plane-{number + 1}"
        flags = ["--port", str(self.plane_ports[number]), "--log-level", "warning"]
        # One hands out messages of streams, too; the other knows only the database.
        leading = self._redis() if number == 0 else self._database()
        return Role(name, PLANE, lambda _life: self._started(name, [*_HOLDFAST, "serve", *flags], leading))

    def _client(self, name: str, module: str) -> Role:
        errand = Errand(
            name=name,
            seed=self.seed,
            notes=str(self.notes),
            database_url=self.database_url,
            planes=tuple(self.plane_urls),
            token=self.token,
            lease_seconds=self.lease_seconds,
            bulk_per_second=self.bulk_per_second,
            mixed_per_second=self.mixed_per_second,
            redis_url=self.redis_url,
        )

        def command(life: int) -> Started:
            return self._started(name, [sys.executable, "-m", module], replace(errand, life=life).as_environment())

        return Role(name, CLIENT, command)

    # what leads where

    def _database(self) -> dict[str, str]:
        leading = {"DATABASE_URL": self.database_url}
        if self.rq_url is not None:
            leading["HOLDFAST_RQ_URL"] = self.rq_url  # so that somebody offers jobs to RQ
        return leading

    def _http(self) -> dict[str, str]:
        return {"HOLDFAST_CONTROL_PLANE": self.plane_urls[0], "HOLDFAST_TOKEN": self.token}

    def _redis(self) -> dict[str, str]:
        known = {} if self.redis_url is None else {"REDIS_URL": self.redis_url}
        return {**self._database(), **known}

    def _started(self, name: str, command: Sequence[str], leading: Mapping[str, str]) -> Started:
        environment = {
            **neutral_environment(),
            "LEASE_SECONDS": f"{self.lease_seconds:g}",
            "POLL_INTERVAL": f"{POLL_SECONDS:g}",
            "WORKER_ID": name,
            "HOLDFAST_GRACE_SECONDS": f"{GRACE_SECONDS:g}",
            "HOLDFAST_ARTIFACTS": str(self.folder / "artifacts"),
            tasks.NOTES_VARIABLE: str(self.notes),
            ANCHOR: str(anchor()),
            **leading,
        }
        clock = self.clocks.get(name)
        return command, environment if clock is None else clock.environment(environment)
