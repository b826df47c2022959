"""Clients and operators: what they ask for, and what they were told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from holdfast.domain.answers import OperatorAnswer
from holdfast.domain.errors import HoldfastError, StoreUnavailable
from holdfast.domain.job import Enqueued, NewJob
from holdfast.domain.lifecycle import State
from holdfast.domain.retry import RetryPolicy
from holdfast.ports import Store
from holdfast.stores.ids import new_ids
from holdfast.stores.sql_store import SqlStore
from holdfast.wiring.redis import StreamOptions, open_transport, streamed
from tests.simulation import weather
from tests.simulation.database import Faults, open_simulated
from tests.simulation.machine import Computer, Machine
from tests.simulation.programs import short
from tests.simulation.scope import Scope
from tests.simulation.weather import LEASE_SECONDS

RETRY = RetryPolicy("exponential", base=0.3, jitter=0.2, cap=2.0)
TASKS = ("work", "other")
SOURCE = "api"
QUEUES = ("default", "second")
LOOKS = 3


@dataclass(frozen=True)
class Accepted:
    """An enqueue that was acknowledged."""

    job: NewJob
    answer: Enqueued


@dataclass(frozen=True)
class Operation:
    """What an operator was told of a cancel or requeue."""

    verb: str
    answer: OperatorAnswer


class Clients:
    def __init__(self, machine: Machine, faults: Faults, scope: Scope, redis: StreamOptions | None) -> None:
        self._machine = machine
        self._world = machine.world
        self._faults = faults
        self._scope = scope
        self._redis = redis
        self._known: list[str] = []
        self._count = 0
        self.accepted: list[Accepted] = []
        self.unsure: list[NewJob] = []  # nobody knows whether these exist
        self.failed_after_idle: list[StoreUnavailable] = []  # enqueues that met nothing else
        self.operations: list[Operation] = []
        self.unanswered: Counter[tuple[str, str]] = Counter()  # operations by verb and job: done or not, nobody knows
        self.open = 0

    def start(self) -> None:
        random, horizon = self._world.random, self._scope.horizon
        for number in range(self._scope.asks):
            act = self._drawn() if number else partial(self._enqueue, [self._new_job() for _ in range(3)])
            self._begin(act, random.random() ** (1 if number else 2) * horizon)

    def _begin(self, act: Callable[[Store], None], after: float) -> None:
        """Every ask is a process of its own: killed with it, it is not asked again."""
        self._count += 1
        self.open += 1
        computer = Computer(self._world, f"client.{self._count}")
        self._world.spawn(computer, "main", lambda: self._main(act, computer), after)

    def _main(self, act: Callable[[Store], None], computer: Computer) -> None:
        store = open_simulated(self._machine, self._faults, computer, was_idle=True)
        try:
            act(store if self._redis is None else streamed(store, open_transport(self._redis)))
        except HoldfastError as error:
            self._world.say(f"was told {error!r}")
        finally:
            self.open -= 1

    def gone(self, computer: Computer) -> None:
        self._world.fault(weather.CLIENT_GONE, host=computer)
        self._world.kill(computer)

    # enqueueing

    def _drawn(self) -> Callable[[Store], None]:
        random = self._world.random
        chance = random.random()
        if chance < 0.45:
            return partial(self._enqueue, [self._new_job()])
        if chance < 0.6:
            return partial(self._enqueue, [self._new_job() for _ in range(random.randint(2, 4))])
        if chance < 0.75:
            return self._cancel
        return random.choice((self._requeue, self._requeue, self._purge, self._purge, self._pause, self._collide))

    def _new_job(self) -> NewJob:
        random = self._world.random
        given: dict[str, Any] = {}
        if random.random() < 0.5:
            given["id"] = new_ids(1)[0]
        if random.random() < self._scope.keyed:
            given["unique_key"] = "red"
        if random.random() < 0.2:
            given["delay"] = random.uniform(0.1, LEASE_SECONDS)
        if random.random() < self._scope.sourced:
            given["source"] = SOURCE
        if random.random() < 0.2:
            given["timeout_seconds"] = random.uniform(0.5, LEASE_SECONDS)
        return NewJob(
            task=random.choice(TASKS),
            payload={"n": random.randrange(1000)},
            queue=random.choice(QUEUES),
            priority=random.choice((0, 0, 5)),
            lease_seconds=LEASE_SECONDS,
            max_attempts=random.choice((1, 3, 5, 5)),
            max_crashes=random.choice((1, 3, 3, 3)),
            retry=RETRY,
            **given,
        )

    def _enqueue(self, jobs: list[NewJob], store: Store) -> None:
        """Who named ids may ask again; who did not, and is not answered, does not know."""
        safe = all(job.id is not None for job in jobs)
        self.unsure += jobs
        current = self._world.current
        assert current is not None
        met = self._faults.met[current.host.name]
        for _ in range(5 if safe else 1):
            before = len(met)
            try:
                answers = store.enqueue_many(jobs) if len(jobs) > 1 else [store.enqueue(jobs[0])]
            except StoreUnavailable as error:
                if set(met[before:]) == {weather.IDLE_CUT}:
                    self.failed_after_idle.append(error)
                self._world.sleep(0.5)
                continue
            self.accepted += [Accepted(*pair) for pair in zip(jobs, answers, strict=True)]
            self._known += dict.fromkeys(answer.id for answer in answers if answer.id not in self._known)
            self._world.say("enqueued " + ", ".join(f"{short(answer.id)} {answer.created}" for answer in answers))
            return

    def _collide(self, store: Store) -> None:
        """A job under an id that another has: refused, or answered with the other, and the other stays as it is."""
        if self._known:
            taken = self._world.random.choice(self._known)
            store.enqueue(NewJob(task="other", payload={"n": -1}, id=taken, lease_seconds=LEASE_SECONDS, retry=RETRY))

    # operating

    def _chosen(self) -> list[str]:
        random = self._world.random
        return random.sample(self._known, min(len(self._known), random.choice((1, 1, 2))))

    def _cancel(self, store: Store) -> None:
        self._operate("cancel", store.cancel, self._chosen())

    def _requeue(self, store: Store) -> None:
        self._operate("requeue", store.requeue, self._dead(store))

    def _operate(self, verb: str, act: Callable[[list[str]], list[OperatorAnswer]], chosen: list[str]) -> None:
        if not chosen:
            return
        self.unanswered.update((verb, job_id) for job_id in chosen)
        answers = act(chosen)
        self.unanswered.subtract((verb, job_id) for job_id in chosen)
        self._world.say(f"{verb}: " + ", ".join(f"{short(answer.job_id)} {answer.did}" for answer in answers))
        self.operations += [Operation(verb, answer) for answer in answers]

    def _purge(self, store: Store) -> None:
        if self._known:
            cast(SqlStore, store).purge(self._dead(store))

    def _dead(self, store: Store) -> list[str]:
        """What has failed or was cancelled, if they see any soon; by the time they ask it may be something else."""
        for _ in range(LOOKS):
            if found := store.jobs(states=(State.FAILED, State.CANCELLED), limit=2).items:
                return [job.id for job in found]
            self._world.sleep(LEASE_SECONDS / 3)
        return self._chosen()

    def _pause(self, store: Store) -> None:
        queue = self._world.random.choice(QUEUES)
        store.pause_queue(queue)
        self._world.sleep(self._world.random.random() * LEASE_SECONDS / 2)
        store.resume_queue(queue)
