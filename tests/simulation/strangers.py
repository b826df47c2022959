"""A worker in another language, as the control plane's contract lets it in: it claims under a request id and repeats
the request until it is answered, beats when it thinks of it, and reports, now and then far too late or twice.

It has no supervisor that would fence it. The store alone keeps it from doing harm, which is what it is here for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from holdfast.domain.answers import Beat, Settled, Status
from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.job import Claimed
from holdfast.domain.outcome import Failed, JobError, Outcome, Released, Report, Succeeded
from holdfast.stores.sql_store import SqlStore
from tests.simulation.clients import TASKS
from tests.simulation.database import Faults, open_simulated
from tests.simulation.machine import Computer, Machine
from tests.simulation.programs import short
from tests.simulation.watch import Watch
from tests.simulation.weather import LEASE_SECONDS

Answer = TypeVar("Answer")
CREDENTIAL = "stranger"
TRIES = 6


@dataclass(frozen=True)
class Told:
    report: Report
    answer: Settled


class Strangers:
    def __init__(self, machine: Machine, faults: Faults, watch: Watch) -> None:
        self._machine = machine
        self._world = machine.world
        self._faults = faults
        self._watch = watch
        self._count = 0
        self.told: list[Told] = []
        self.reported: set[tuple[str, int]] = set()  # attempts of which some report was sent, answered or not
        self.open = 0

    def start(self, count: int, horizon: float) -> None:
        for _ in range(count):
            self._count += 1
            computer = Computer(self._world, f"stranger.{self._count}")
            self.open += 1
            after = self._world.random.random() * horizon
            self._world.spawn(computer, "main", partial(self._main, computer), after)

    def _main(self, computer: Computer) -> None:
        try:
            self._visit(computer)
        finally:
            self.open -= 1

    def _visit(self, computer: Computer) -> None:
        store = open_simulated(self._machine, self._faults, computer)
        request = f"{self._machine.noise.getrandbits(64):016x}"
        found = self._asked(
            lambda: store.claim(computer.name, 1, None, TASKS, credential=CREDENTIAL, request_id=request)
        )
        for job in found or ():
            self._work(store, job, computer.name)

    def _work(self, store: SqlStore, job: Claimed, name: str) -> None:
        random = self._world.random
        self._world.say(f"claimed {short(job.attempt_id)}")
        lease = Beat(job.job_id, job.attempt, job.lease_token, name, credential=CREDENTIAL)
        for _ in range(random.choice((0, 1, 3))):
            self._world.sleep(random.uniform(0.1, 1.6) * LEASE_SECONDS)
            self._beat(store, lease)
        self._world.sleep(random.choice((0.0, 0.5, 1.5)) * LEASE_SECONDS * random.random())
        outcome: Outcome = random.choice(
            (Succeeded({"by": name}), Failed(JobError("odd", "failed")), Released("no time"))
        )
        report = Report(job.job_id, job.attempt, job.lease_token, outcome, name, credential=CREDENTIAL)
        if random.random() < 0.3:
            self._forge(store, report)
        answer = self._report(store, report)
        if random.random() < 0.5:  # once more, later: the same answer again
            self._world.sleep(random.random() * LEASE_SECONDS)
            again = self._report(store, report)
            if answer is not None and again is not None and (answer.ok, answer.event) != (again.ok, again.event):
                self._watch.violated("replay", f"{short(job.attempt_id)} was told {answer}, and then {again}")

    def _beat(self, store: SqlStore, lease: Beat) -> None:
        is_over = self._watch.is_over(lease.job_id, lease.attempt)
        beaten = self._asked(lambda: store.heartbeat([lease]))
        if is_over and beaten is not None and beaten[0].status is Status.APPLIED:
            self._watch.violated("token", f"{short(lease.job_id)}.{lease.attempt} is over, and its heartbeat was taken")

    def _forge(self, store: SqlStore, report: Report) -> None:
        forged = replace(report, outcome=Failed(JobError("forged", "by nobody")), lease_token="0" * 64)
        told = self._asked(lambda: store.settle([forged]))
        if told is not None and told[0].status is not Status.REFUSED:
            self._watch.violated("token", f"{short(report.job_id)} was settled with a token that nobody has")

    def _report(self, store: SqlStore, report: Report) -> Settled | None:
        self.reported.add((report.job_id, report.attempt))
        answers = self._asked(lambda: store.settle([report]))
        if answers is None:
            return None
        self._world.say(f"told {answers[0]}")
        self.told.append(Told(report, answers[0]))
        return answers[0]

    def _asked(self, ask: Callable[[], Answer]) -> Answer | None:
        """Until it is answered, or it gives up."""
        for _ in range(TRIES):
            try:
                return ask()
            except StoreUnavailable:
                self._world.sleep(self._world.random.random() * 2.0)
        return None
