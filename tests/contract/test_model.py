"""Random lives: two workers, a reaper, an operator and a clock drive a store, and a model says what must come of it.

The model knows the pure domain only: `settle()` decides what an outcome does, and every move it makes must be an arrow
of the lifecycle that charges what the table says. After each step every row of the store must be what the model says,
and whatever the store answered must be what the model expected. The `store` fixture then has `verify` read the whole
log once more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy.exc import IntegrityError

from holdfast.domain.answers import Beat, Operated, Settled, Status
from holdfast.domain.job import Claimed, NewJob
from holdfast.domain.lifecycle import ACTIVE, CLAIMABLE, MANUAL_EVENTS, TERMINAL, Charge, Event, State, find_move
from holdfast.domain.outcome import (
    Cancelled,
    Crashed,
    Ending,
    Failed,
    JobError,
    LeaseLost,
    Outcome,
    Released,
    Report,
    Snoozed,
    Succeeded,
)
from holdfast.domain.retry import RetryPolicy
from holdfast.domain.settle import Standing, Transition, settle
from holdfast.stores.sql_store import SqlStore
from tests.contract.ground import FAR, ByHand, Clock

RETRY = RetryPolicy("exponential", base=4.0, jitter=0.0, cap=20.0)
PERIOD, LEASE, HEARTBEAT = 5.0, 60.0, 20.0
GAP = LEASE - HEARTBEAT
OUTCOMES: tuple[Outcome, ...] = (
    Succeeded(1),
    Succeeded({"b": 2}),
    Failed(JobError("boom", "again")),
    Failed(JobError("bad", "never", retryable=False)),
    Crashed("killed", signal=9),
    Released(),
    Snoozed(3.0),
    Cancelled(),
)


@dataclass(eq=False)
class ModelJob:
    id: str
    key: str | None
    priority: int
    lease_seconds: float
    max_attempts: int
    max_crashes: int
    run_after: float
    state: State = State.PENDING
    attempt: int = 0
    failures: int = 0
    crashes: int = 0
    seq: int = 1
    cancel_requested: bool = False
    token: str | None = None
    expires: float = 0.0
    endings: dict[int, tuple[str | None, Outcome | None, Settled]] = field(default_factory=dict)

    @property
    def standing(self) -> Standing:
        return Standing(self.failures, self.crashes, self.max_attempts, self.max_crashes, RETRY, self.cancel_requested)

    def move(self, event: Event, target: State, failures: int = 0, crashes: int = 0) -> None:
        """An arrow of the table, or the model itself is wrong."""
        arrow = find_move(event, self.state, target)
        assert arrow is not None, f"the lifecycle has no {event} from {self.state} to {target}"
        charged = {
            Charge.NOTHING: (0, 0),
            Charge.ATTEMPT: (0, 0),
            Charge.FAILURE: (1, 0),
            Charge.CRASH: (0, 1),
            Charge.FAILURE_OR_CRASH: (failures, 1 - failures),
            Charge.RESET: (-self.failures, -self.crashes),
        }[arrow.charge]
        if arrow.charge is not Charge.RESET:
            assert (failures, crashes) == charged
        self.attempt += arrow.charge is Charge.ATTEMPT
        self.failures += charged[0]
        self.crashes += charged[1]
        self.seq += 1
        self.state = target
        if target is not State.RUNNING:
            self.token = None

    def end(self, ending: Ending, now: float) -> Transition:
        """What the pure decision does to it."""
        transition = settle(self.standing, ending)
        attempt, token = self.attempt, self.token
        self.move(transition.event, transition.state, transition.failures, transition.crashes)
        if transition.delay_seconds is not None:
            self.run_after = now + transition.delay_seconds
        outcome = None if isinstance(ending, LeaseLost) else ending
        answer = Settled(self.id, attempt, Status.REPLAYED, transition.event, transition.state)
        self.endings[attempt] = (token, outcome, answer)
        return transition

    def claim(self, token: str | None, expires: float) -> None:
        self.move(Event.CLAIMED, State.RUNNING)
        self.token, self.expires = token, expires

    def requeue(self, now: float | None = None) -> None:
        self.move(Event.REQUEUED, State.PENDING)
        self.cancel_requested = False
        if now is not None:
            self.run_after = now


@dataclass
class Duty:
    ticked: float | None = None
    outage_ended: float | None = None


@dataclass
class Lease:
    """What a worker remembers of a claim, for as long as it lives; it may be long lost."""

    claimed: Claimed
    worker: str


class Machine(RuleBasedStateMachine):
    store: SqlStore
    clock: Clock
    by_hand: ByHand
    lives = 0

    def __init__(self) -> None:
        super().__init__()
        Machine.lives += 1
        self.queue = f"life-{Machine.lives}"
        self.now = 0.0
        self.jobs: list[ModelJob] = []
        self.pruned: list[ModelJob] = []
        self.leases: list[Lease] = []
        self.duty = Duty()
        self.paused = False

    @initialize(count=st.integers(2, 5), attempts=st.integers(2, 4), lease=st.sampled_from([10.0, 60.0]))
    def begin(self, count: int, attempts: int, lease: float) -> None:
        self.by_hand("DELETE FROM holdfast_duties")
        self.enqueue(0.0, 0, attempts, attempts, lease, None, count)

    def teardown(self) -> None:
        active = ", ".join(f"'{state}'" for state in ACTIVE)
        self.by_hand(
            f"UPDATE holdfast_jobs SET state = 'cancelled' WHERE queue = '{self.queue}' AND state IN ({active})"
        )

    # choosing

    def job(self, choice: int, *states: State) -> ModelJob | None:
        fitting = [job for job in self.jobs if not states or job.state in states]
        return fitting[choice % len(fitting)] if fitting else None

    def of(self, lease: Lease) -> ModelJob:
        return next(job for job in (*self.jobs, *self.pruned) if job.id == lease.claimed.job_id)

    def holds(self, lease: Lease) -> bool:
        job = self.of(lease)
        return job.state is State.RUNNING and (job.attempt, job.token) == (
            lease.claimed.attempt,
            lease.claimed.lease_token,
        )

    def is_due(self, job: ModelJob) -> bool:
        return job.state in CLAIMABLE and job.run_after <= self.now and not self.paused

    def is_expired(self, job: ModelJob) -> bool:
        ended = self.duty.outage_ended
        in_grace = ended is not None and ended + job.lease_seconds > self.now
        return job.state is State.RUNNING and job.expires < self.now and not in_grace

    def key_is_taken(self, job: ModelJob) -> bool:
        return job.key is not None and any(
            other.key == job.key and other.state in ACTIVE for other in self.jobs if other is not job
        )

    # clients

    @rule(
        delay=st.sampled_from([0.0, 0.0, 5.0]),
        priority=st.sampled_from([0, 0, 7]),
        attempts=st.integers(1, 3),
        crashes=st.integers(1, 3),
        lease=st.sampled_from([10.0, 60.0]),
        key=st.sampled_from([None, None, "a", "b"]),
        many=st.integers(1, 3),
    )
    def enqueue(
        self, delay: float, priority: int, attempts: int, crashes: int, lease: float, key: str | None, many: int
    ) -> None:
        key = None if key is None else f"{self.queue}-{key}"
        wanted = NewJob(
            task="live",
            queue=self.queue,
            delay=delay,
            priority=priority,
            max_attempts=attempts,
            max_crashes=crashes,
            lease_seconds=lease,
            unique_key=key,
            retry=RETRY,
        )
        for answer in self.store.enqueue_many([wanted] * many):
            holder = next((job for job in self.jobs if key and job.key == key and job.state in ACTIVE), None)
            if holder is not None:
                assert (answer.created, answer.id, answer.state) == (False, holder.id, holder.state)
                continue
            assert (answer.created, answer.state) == (True, State.PENDING)
            due = self.now + delay
            self.jobs.append(ModelJob(answer.id, key, priority, lease, attempts, crashes, due))

    # workers

    @rule(worker=st.sampled_from(["ann", "bob"]), limit=st.integers(1, 4))
    def claim(self, worker: str, limit: int) -> None:
        due = sorted(filter(self.is_due, self.jobs), key=lambda job: (-job.priority, job.run_after, job.id))
        claims = self.store.claim(worker, limit, queues=[self.queue])
        assert [claimed.job_id for claimed in claims] == [job.id for job in due[:limit]]
        for job, claimed in zip(due, claims, strict=False):
            self.take(job, claimed, worker)

    @rule(worker=st.sampled_from(["ann", "bob"]), choice=st.integers(0, 30))
    def claim_one(self, worker: str, choice: int) -> None:
        job = self.job(choice)
        if job is None:
            return
        if self.is_expired(job):
            self.note_outage()
        if self.is_expired(job):
            job.end(LeaseLost(), self.now)
        expected = self.is_due(job)
        claimed = self.store.claim_job(worker, job.id, lease_seconds=LEASE, heartbeat_seconds=HEARTBEAT)
        assert (claimed is not None) == expected
        if claimed is not None:
            self.take(job, claimed, worker)

    @precondition(lambda self: any(map(self.is_due, self.jobs)))
    @rule(choice=st.integers(0, 30))
    def find_the_queue_paused(self, choice: int) -> None:
        self.store.pause_queue(self.queue)
        self.paused = True
        self.claim("ann", 3)
        self.claim_one("bob", choice)
        self.store.resume_queue(self.queue)
        self.paused = False

    def note_outage(self) -> None:
        """A message that comes before the reaper is back: it counts one outage between two ticks."""
        ticked, ended = self.duty.ticked, self.duty.outage_ended
        if ticked is not None and ticked < self.now - GAP and (ended is None or ended <= ticked):
            self.duty.outage_ended = self.now

    def take(self, job: ModelJob, claimed: Claimed, worker: str) -> None:
        job.claim(claimed.lease_token, self.now + job.lease_seconds)
        assert (claimed.attempt, claimed.crashes) == (job.attempt, job.crashes)
        self.leases.append(Lease(claimed, worker))

    @precondition(lambda self: self.leases)
    @rule(choices=st.lists(st.integers(0, 30), min_size=1, max_size=4))
    def heartbeat(self, choices: list[int]) -> None:
        """Of any leases there ever were, at most one of each job."""
        leases = self.pick(choices)
        beats = [Beat(one.claimed.job_id, one.claimed.attempt, one.claimed.lease_token, one.worker) for one in leases]
        for lease, answer in zip(leases, self.store.heartbeat(beats), strict=True):
            job = self.of(lease)
            assert answer.status is (Status.APPLIED if self.holds(lease) else Status.REFUSED)
            if self.holds(lease):
                job.expires = self.now + job.lease_seconds
                assert answer.cancel == job.cancel_requested

    @precondition(lambda self: self.leases)
    @rule(
        choices=st.lists(st.integers(0, 30), min_size=1, max_size=4),
        outcomes=st.lists(st.sampled_from(OUTCOMES), min_size=4, max_size=4),
    )
    def report(self, choices: list[int], outcomes: list[Outcome]) -> None:
        """On any leases there ever were: current ones, lost ones, and ones that have reported before."""
        leases = self.pick(choices)
        reports = [
            Report(one.claimed.job_id, one.claimed.attempt, one.claimed.lease_token, outcome, worker=one.worker)
            for one, outcome in zip(leases, outcomes, strict=False)
        ]
        answers = self.store.settle(reports)
        for lease, sent, answer in zip(leases, reports, answers, strict=True):
            self.check_answer(lease, sent.outcome, answer)

    @rule(outcomes=st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=4))
    def work(self, outcomes: list[Outcome]) -> None:
        """What mostly happens: claim, beat, report."""
        before = len(self.leases)
        self.claim("ann", len(outcomes))
        held = list(range(len(self.leases) - before))
        if held:
            self.heartbeat(held)
            self.wait(1.0)
            self.report(held, outcomes[: len(held)])

    @precondition(lambda self: any(job.endings for job in self.jobs))
    @rule(choice=st.integers(0, 30), times=st.integers(1, 3))
    def report_again(self, choice: int, times: int) -> None:
        """Exactly what was said before, as a worker whose reply was lost would say it."""
        spoken = [lease for lease in self.leases if self.said(lease) is not None]
        if not spoken:
            return
        lease = spoken[choice % len(spoken)]
        outcome = self.said(lease)
        assert outcome is not None
        one = lease.claimed
        for _ in range(times):
            [answer] = self.store.settle([Report(one.job_id, one.attempt, one.lease_token, outcome)])
            assert answer.status is Status.REPLAYED
            self.check_answer(lease, outcome, answer)

    def said(self, lease: Lease) -> Outcome | None:
        token, outcome, _ = self.of(lease).endings.get(lease.claimed.attempt, (None, None, None))
        return outcome if token == lease.claimed.lease_token else None

    def pick(self, choices: list[int]) -> list[Lease]:
        """One lease of each job; the newest are as likely as all the old ones together."""
        picked: dict[str, Lease] = {}
        for choice in choices:
            lease = self.leases[-1 - choice % len(self.leases)]
            picked.setdefault(lease.claimed.job_id, lease)
        return list(picked.values())

    def check_answer(self, lease: Lease, outcome: Outcome, answer: Settled) -> None:
        job, attempt = self.of(lease), lease.claimed.attempt
        if self.holds(lease):
            transition = job.end(outcome, self.now)
            assert answer == Settled(job.id, attempt, Status.APPLIED, transition.event, transition.state)
            return
        _, _, recorded = job.endings[attempt]
        if self.said(lease) == outcome:
            assert answer == recorded
        else:
            assert answer.status is Status.REFUSED

    @precondition(lambda self: self.leases)
    @rule(choice=st.integers(0, 30), outcome=st.sampled_from(OUTCOMES))
    def forge(self, choice: int, outcome: Outcome) -> None:
        one = self.leases[choice % len(self.leases)].claimed
        for forged in (
            Report(one.job_id, one.attempt, "0" * 64, outcome, worker="eve"),
            Report(one.job_id, one.attempt + 1, one.lease_token, outcome, worker="eve"),
        ):
            assert self.store.settle([forged])[0].status is Status.REFUSED

    # reaper

    @rule(seconds=st.sampled_from([1.0, 4.0, 11.0, 35.0, 45.0, 61.0, 500.0]))
    def wait(self, seconds: float) -> None:
        self.clock.move(seconds)
        self.now += seconds

    @precondition(lambda self: any(job.state is State.RUNNING for job in self.jobs))
    @rule(patience=st.sampled_from([1, 2, 3]))
    def watch_leases_run_out(self, patience: int) -> None:
        """With a reaper that is never away."""
        self.reap("one")
        for _ in range(patience):
            self.wait(31.0)
            self.reap("two")

    @rule(holder=st.sampled_from(["one", "two"]))
    def reap(self, holder: str) -> None:
        ticked = self.duty.ticked is None or self.duty.ticked <= self.now - PERIOD
        if ticked:
            if self.duty.ticked is not None and self.duty.ticked < self.now - GAP:
                self.duty.outage_ended = self.now
            self.duty.ticked = self.now
        expected = {job.id: job for job in self.jobs if ticked and self.is_expired(job)}
        reaped = self.store.reap(holder, period=PERIOD, lease_seconds=LEASE, heartbeat_seconds=HEARTBEAT)
        assert reaped.ticked == ticked
        assert {settled.job_id for settled in reaped.settled} == set(expected)
        for settled in reaped.settled:
            transition = expected[settled.job_id].end(LeaseLost(), self.now)
            assert (settled.event, settled.state) == (transition.event, transition.state)

    # operator

    @rule(choices=st.lists(st.integers(0, 30), min_size=1, max_size=3, unique=True))
    def cancel(self, choices: list[int]) -> None:
        jobs = list({job.id: job for choice in choices if (job := self.job(choice)) is not None}.values())
        for job, answer in zip(jobs, self.store.cancel([job.id for job in jobs]), strict=True):
            if job.state in CLAIMABLE:
                job.move(Event.CANCELLED, State.CANCELLED)
                assert answer.did is Operated.CANCELLED
            elif job.state is State.RUNNING:
                if not job.cancel_requested:
                    job.move(Event.CANCEL_REQUESTED, State.RUNNING)
                    job.cancel_requested = True
                assert answer.did is Operated.CANCEL_REQUESTED
            else:
                assert answer.did is (Operated.CANCELLED if job.state is State.CANCELLED else Operated.WRONG_STATE)

    @rule(choices=st.lists(st.integers(0, 30), min_size=1, max_size=3, unique=True))
    def requeue(self, choices: list[int]) -> None:
        chosen = (self.job(choice, State.FAILED, State.CANCELLED, State.SUCCEEDED) for choice in choices)
        jobs = list({job.id: job for job in chosen if job is not None}.values())
        answers = {answer.job_id: answer.did for answer in self.store.requeue([job.id for job in jobs])}
        for job in sorted(jobs, key=lambda job: job.id):
            if job.state is State.SUCCEEDED:
                assert answers[job.id] is Operated.WRONG_STATE
            elif self.key_is_taken(job):
                assert answers[job.id] is Operated.KEY_TAKEN
            else:
                job.requeue(self.now)
                assert answers[job.id] is Operated.REQUEUED

    @rule(choice=st.integers(0, 30), to=st.integers(0, 30))
    def type_a_legal_update(self, choice: int, to: int) -> None:
        job = self.job(choice, *(source for source, _ in MANUAL_EVENTS))
        if job is None:
            return
        targets = [target for source, target in MANUAL_EVENTS if source is job.state]
        target = targets[to % len(targets)]
        if job.state in TERMINAL and self.key_is_taken(job):
            with pytest.raises(IntegrityError, match=r"unique|UNIQUE"):
                self.type(job, target)
            return
        self.type(job, target)
        event, attempt, token = MANUAL_EVENTS[job.state, target], job.attempt, job.token
        was_running = job.state is State.RUNNING
        if event is Event.CLAIMED:
            job.claim(None, float("inf"))
        elif event is Event.REQUEUED:
            job.requeue()
        else:
            job.move(event, target, failures=int(event in (Event.RETRY_SCHEDULED, Event.FAILED)))
        if was_running:
            answer = Settled(job.id, attempt, Status.REPLAYED, event, target)
            job.endings[attempt] = (token, None, answer)

    @rule(choice=st.integers(0, 30), to=st.sampled_from([*State, "attempt", "failures", "crashes", "seq"]))
    def type_what_is_refused(self, choice: int, to: State | str) -> None:
        job = self.job(choice)
        if job is None or to is job.state or (job.state, to) in MANUAL_EVENTS:
            return
        if isinstance(to, State):
            with pytest.raises(IntegrityError, match="holdfast"):
                self.type(job, to)
        else:
            with pytest.raises(IntegrityError, match="holdfast"):
                self.by_hand(f"UPDATE holdfast_jobs SET {to} = {to} + 2 WHERE id = '{job.id}'")

    def type(self, job: ModelJob, target: State) -> None:
        lease = f", lease_token = 'typed', lease_expires_at = '{FAR}'" if target is State.RUNNING else ""
        self.by_hand(f"UPDATE holdfast_jobs SET state = '{target}'{lease} WHERE id = '{job.id}'")

    @precondition(lambda self: len(self.jobs) > 2)
    @rule(choice=st.integers(0, 30))
    def delete(self, choice: int) -> None:
        """Allowed when it has ended, and only then."""
        job = self.job(choice)
        if job is None:
            return
        if job.state in TERMINAL:
            self.by_hand(f"DELETE FROM holdfast_jobs WHERE id = '{job.id}'")
            self.jobs.remove(job)
            self.pruned.append(job)
        else:
            with pytest.raises(IntegrityError, match="only a finished job"):
                self.by_hand(f"DELETE FROM holdfast_jobs WHERE id = '{job.id}'")

    # what must always hold

    @invariant()
    def every_row_is_what_the_model_says(self) -> None:
        rows = self.by_hand(
            "SELECT CAST(id AS text), state, attempt, failures, crashes, seq, lease_token IS NOT NULL,"
            f" cancel_requested_at IS NOT NULL FROM holdfast_jobs WHERE queue = '{self.queue}' ORDER BY id"
        )
        assert [(*row[:6], bool(row[6]), bool(row[7])) for row in rows] == [
            (
                job.id,
                str(job.state),
                job.attempt,
                job.failures,
                job.crashes,
                job.seq,
                job.state is State.RUNNING,
                job.cancel_requested,
            )
            for job in sorted(self.jobs, key=lambda job: job.id)
        ]

    @invariant()
    def a_job_has_at_most_one_holder(self) -> None:
        holders = [lease.claimed.job_id for lease in self.leases if self.holds(lease)]
        assert len(holders) == len(set(holders))


def run_machine(store: SqlStore, clock: Clock, by_hand: ByHand, **wanted: Any) -> None:
    machine: type[Machine] = type("Lives", (Machine,), {"store": store, "clock": clock, "by_hand": by_hand})
    run_state_machine_as_test(
        machine,
        settings=settings(
            deadline=None,
            database=None,
            print_blob=True,
            verbosity=Verbosity.normal,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
            **wanted,
        ),
    )


@pytest.mark.timeout(1800)  # a failure is made small before it is shown
def test_random_lives_are_what_the_pure_table_says(
    store: SqlStore, clock: Clock, by_hand: ByHand, pytestconfig: pytest.Config
) -> None:
    """The same lives every time, unless `--hypothesis-seed` asks for others. Fewer on Postgres, where a step costs
    several times as much."""
    seeded = pytestconfig.getoption("--hypothesis-seed", None) is not None
    lives = 20 if by_hand.is_postgres else 60
    run_machine(store, clock, by_hand, max_examples=lives, stateful_step_count=45, derandomize=not seeded)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_many_long_random_lives_are_what_the_pure_table_says(store: SqlStore, clock: Clock, by_hand: ByHand) -> None:
    run_machine(store, clock, by_hand, max_examples=400, stateful_step_count=120)
