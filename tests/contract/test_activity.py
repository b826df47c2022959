"""Activity by the minute: what the roll-up says is what the log says, whoever computed it and however often."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from types import SimpleNamespace

import pytest

from holdfast.domain import rolling as domain_rolling
from holdfast.domain.activity import COUNTS, Activity, Kind, Spread, Step, merged
from holdfast.domain.errors import InvalidInput
from holdfast.domain.job import Claimed
from holdfast.domain.lifecycle import CLAIMABLE, OUTCOMES, State
from holdfast.domain.outcome import Released, Snoozed, Succeeded
from holdfast.domain.retention import Group, Kept
from holdfast.domain.rolling import COUNTED_AS, SHORTEST_SPAN, Tally
from holdfast.domain.stuck import due_since
from holdfast.stores.database import Database
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.statements import activity as sql
from holdfast.stores.verbs import rolling
from tests.contract.ground import ByHand, Clock, on_postgres
from tests.contract.steps import (
    BROKEN,
    EVERY_OUTCOME,
    HOPELESS,
    claim_this,
    enqueue,
    job_in,
    postgres_later,
    reap,
    settle,
    settle_well,
    start,
)

HOSTILE = ("'; DROP TABLE holdfast_minutes; --", "<script>alert(1)</script>", '%s :name {x} \\ "ü"')


@pytest.fixture(autouse=True)
def passes_take_no_time() -> Iterator[None]:
    """A slow pass stops early, and the pause after it is thirty times as long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rolling, "time", SimpleNamespace(monotonic=lambda: 0.0))
        yield


def roll_up_all(store: SqlStore, clock: Clock) -> None:
    """Until everything so far is final: two minutes later, and as often as it takes."""
    clock.move(130)
    for _ in range(100):
        rolled = store.roll_up("ann")
        if rolled is not None and not rolled.behind:
            return
        clock.move(61)
    raise AssertionError("it is behind for ever")


def whole(found: Activity, name: str = "") -> Step:
    return merged(found.series[name])


class History:
    """Jobs that live at random, and what was seen of them."""

    def __init__(self, store: SqlStore, clock: Clock, seed: int) -> None:
        self.store, self.clock = store, clock
        self.chance = random.Random(seed)
        self.held: list[Claimed] = []
        self.ids: list[str] = []
        self.waits: dict[tuple[str, int], float] = {}  # by job and attempt

    def step(self) -> None:
        self.clock.move(self.chance.choice((0.0, 0.25, 1.5, 7.0, 20.0)))
        self.chance.choice((self.enqueue, self.enqueue, self.claim, self.claim, self.end, self.end, self.operate))()

    def enqueue(self) -> None:
        name = self.chance.choice(HOSTILE)
        source = self.chance.choice((None, "shop", HOSTILE[0]))
        delay = timedelta(seconds=self.chance.choice((0, 0, 30)))
        run_after = self.clock.now() + delay
        self.ids.append(
            enqueue(self.store, self.chance.choice(HOSTILE), queue=name, source=source, run_after=run_after)
        )

    def claim(self) -> None:
        before = {i: self.store.job(i) for i in self.ids}
        for claimed in self.store.claim("ann", 2):
            job = before[claimed.job_id]
            due = due_since(job.run_after, job.attempt, job.updated_at)
            self.waits[claimed.job_id, claimed.attempt] = (self.clock.now() - due).total_seconds()
            self.held.append(claimed)

    def end(self) -> None:
        if self.held:
            claimed = self.held.pop(self.chance.randrange(len(self.held)))
            settle(self.store, claimed, self.chance.choice(list(EVERY_OUTCOME.values())))

    def operate(self) -> None:
        if not self.ids:
            return
        job_id = self.chance.choice(self.ids)
        what = self.chance.choice(("cancel", "requeue", "reap", "roll up"))
        if what == "cancel":
            self.store.cancel([job_id])
        elif what == "requeue":
            self.store.requeue([job_id])
        elif what == "reap":
            reap(self.store)
        else:
            self.store.roll_up(self.chance.choice(("ann", "bob")))

    def counted(self, kind: Kind) -> dict[tuple[str, datetime], Counter[str]]:
        """What the log says, event by event."""
        found: dict[tuple[str, datetime], Counter[str]] = defaultdict(Counter)
        for job_id in self.ids:
            job = self.store.job(job_id)
            named = {Kind.ALL: "", Kind.QUEUE: job.queue, Kind.TASK: job.task, Kind.SOURCE: job.source}[kind]
            for event in self.store.events(job_id):
                if named is not None and event.event in COUNTED_AS:
                    minute = event.at.astimezone(UTC).replace(second=0, microsecond=0)
                    found[named, minute][COUNTED_AS[event.event]] += 1
        return found

    def runs(self) -> Spread:
        seconds = []
        for job_id in self.ids:
            began = datetime.min.replace(tzinfo=UTC)
            for event in self.store.events(job_id):
                if event.event == "claimed":
                    began = event.at
                elif event.event in OUTCOMES and event.from_state == "running":
                    seconds.append((event.at - began).total_seconds())
        return Spread.of(seconds)

    def known_waits(self, *, always: bool) -> Spread:
        """When the first claim of a job was due, its row says, until the job is put off; `always`: of those alone that
        never came back, which is known whenever one looks."""
        known = []
        for (job_id, attempt), seconds in self.waits.items():
            job, events = self.store.job(job_id), self.store.events(job_id)
            [claim] = [event for event in events if (event.event, event.attempt) == ("claimed", attempt)]
            if claim.seq > 2:  # the event before says when it came back
                known.append(seconds)
            elif always:
                if not any(event.to_state in CLAIMABLE for event in events[claim.seq :]):
                    known.append(seconds)
            elif job.attempt == attempt and job.state not in CLAIMABLE and job.run_after <= claim.at:
                known.append(seconds)
        return Spread.of(known)


def counted(found: Activity) -> dict[tuple[str, datetime], dict[str, int]]:
    told = {
        (name, step.at): {column: getattr(step, column) for column in COUNTS if getattr(step, column)}
        for name, steps in found.series.items()
        for step in steps
    }
    return {key: counts for key, counts in told.items() if counts}


@pytest.mark.parametrize(
    ("database_url", "seed"),
    [
        *(("sqlite", seed) for seed in (1, 2, 3, 4)),
        ("postgres", 1),
        *(pytest.param("postgres", seed, marks=pytest.mark.long) for seed in (2, 3, 4)),
    ],
    indirect=["database_url"],
)
def test_the_roll_up_of_any_history_is_what_counting_its_events_gives(
    store: SqlStore, clock: Clock, by_hand: ByHand, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(domain_rolling, "LONGEST_SPAN", timedelta(minutes=2))  # so that one pass takes several reads
    history = History(store, clock, seed)
    began = clock.now()
    for _ in range(120):
        history.step()
    for at_once in (False, True):  # as it grew, with passes in between; and all of it anew
        if at_once:
            by_hand("DELETE FROM holdfast_minutes")
            by_hand("DELETE FROM holdfast_duties WHERE name = 'minutes'")
        roll_up_all(store, clock)
        seconds = (clock.now() - began).total_seconds()
        for kind in Kind:
            assert counted(store.activity(kind, seconds)) == history.counted(kind)
        total = whole(store.activity(Kind.ALL, seconds))
        assert total.run.counts == history.runs().counts
        assert total.wait.total >= history.known_waits(always=True).total
    assert total.wait.counts == history.known_waits(always=False).counts


def test_one_of_all_computes_it_in_a_period(store: SqlStore, clock: Clock, open_again: Callable[[], SqlStore]) -> None:
    enqueue(store)
    other = open_again()
    rolled = store.roll_up("ann")
    assert rolled is not None
    assert (rolled.events, rolled.behind) == (1, False)
    assert other.roll_up("bob") is None
    clock.move(61)
    assert other.roll_up("bob") is not None
    assert store.roll_up("ann") is None


def test_while_nothing_happens_it_is_computed_once_a_minute(store: SqlStore, clock: Clock) -> None:
    enqueue(store)
    clock.move(1)
    assert store.roll_up("ann") is not None
    clock.move(15)
    assert store.roll_up("ann") is None
    enqueue(store)
    assert store.roll_up("ann") is not None
    clock.move(61)
    assert store.roll_up("ann") is not None


def test_the_present_minute_is_there_before_it_is_over(store: SqlStore, clock: Clock) -> None:
    enqueue(store)
    store.roll_up("ann")
    assert store.activity(Kind.ALL, 60).series[""][-1].enqueued == 1
    clock.move(11)
    enqueue(store)
    store.roll_up("ann")
    assert whole(store.activity(Kind.ALL, 120)).enqueued == 2


def test_what_commits_late_is_counted_while_its_minute_is_not_final(
    store: SqlStore, clock: Clock, by_hand: ByHand
) -> None:
    """A user's transaction dates its events when they happen, and commits them when it likes."""
    store.roll_up("ann")
    late = clock.now()
    clock.move(100)
    stamp = late.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    by_hand("INSERT INTO holdfast_jobs (task, updated_at, created_at) VALUES ('late', :at, :at)", at=stamp)
    roll_up_all(store, clock)
    [step] = [step for step in store.activity(Kind.TASK, 600).series["late"] if step.enqueued]
    assert step.at == late.astimezone(UTC).replace(second=0, microsecond=0)


def test_after_an_outage_it_catches_up_in_steps_and_skips_nothing(
    store: SqlStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.roll_up("ann")
    for _ in range(4):
        clock.move(1800)
        enqueue(store)
    monkeypatch.setattr(rolling, "LONGEST_PASS_SECONDS", 0.0)  # every statement is a pass of its own
    rolled = store.roll_up("ann")
    assert rolled is not None
    assert rolled.behind
    assert rolled.through < clock.now()
    roll_up_all(store, clock)
    series = store.activity(Kind.ALL, 3 * 3600, step_seconds=600).series[""]
    assert [step.enqueued for step in series if step.enqueued] == [1, 1, 1, 1]


def test_a_minute_in_which_much_happens_is_read_in_pieces(
    store: SqlStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so is the first one of all, of which nobody knows how much happened in it."""
    clock.move(60 - clock.now().second)
    for _ in range(40):
        clock.move(4)
        enqueue(store)
    read: list[tuple[datetime, datetime]] = []
    count = rolling._count

    def spied(database: Database, tally: Tally, since: datetime, until: datetime) -> None:
        read.append((since, until))
        count(database, tally, since, until)

    monkeypatch.setattr(rolling, "_count", spied)
    monkeypatch.setattr(domain_rolling, "LONGEST_READ_SECONDS", 0.0)  # nothing is ever quick enough
    monkeypatch.setattr(rolling, "LONGEST_PASS_SECONDS", 60.0)
    rolled = store.roll_up("ann")
    assert rolled is not None
    assert rolled.events == 40
    assert {until - since for since, until in read} == {SHORTEST_SPAN}
    assert all(before[1] == after[0] for before, after in pairwise(read))
    by_minute = [step.enqueued for step in store.activity(Kind.ALL, 240).series[""] if step.enqueued]
    assert sum(by_minute) == 40
    assert max(by_minute) == 15

    monkeypatch.undo()
    monkeypatch.setattr(rolling, "_count", spied)
    read.clear()
    clock.move(3 * 3600)
    roll_up_all(store, clock)
    assert max(until - since for since, until in read) > timedelta(minutes=2), "where little happens, more at once"
    assert whole(store.activity(Kind.ALL, 4 * 3600)).enqueued == 40


def test_on_an_old_database_it_begins_an_hour_back(store: SqlStore, clock: Clock) -> None:
    enqueue(store)
    clock.move(2 * 3600)
    enqueue(store)
    roll_up_all(store, clock)
    assert whole(store.activity(Kind.ALL, 4 * 3600)).enqueued == 1


def test_depth_is_that_of_the_last_look(store: SqlStore, clock: Clock) -> None:
    clock.move(60 - clock.now().second)
    enqueue(store, queue="a", run_after=clock.now() - timedelta(seconds=40))
    enqueue(store, queue="a", run_after=clock.now() + timedelta(hours=1))
    start(store, queue="b")
    store.roll_up("ann")
    last = store.activity(Kind.QUEUE, 60).series["a"][-1]
    assert (last.ready, last.scheduled, last.running) == (1, 1, 0)
    assert last.oldest_seconds == pytest.approx(40)
    everything = store.activity(Kind.ALL, 60).series[""][-1]
    assert (everything.ready, everything.scheduled, everything.running) == (1, 1, 1)
    clock.move(20)
    store.cancel([item.job.id for item in store.listed(queues=["a"]).items])
    store.roll_up("ann")
    now_empty = store.activity(Kind.QUEUE, 60).series["a"][-1]
    assert (now_empty.ready, now_empty.scheduled, now_empty.oldest_seconds) == (0, 0, None)


def test_a_queue_that_has_gone_quiet_is_known_to_be_empty(store: SqlStore, clock: Clock) -> None:
    settle_well(store, start(store, queue="a"), Succeeded())
    store.roll_up("ann")
    clock.move(300)
    store.roll_up("ann")
    steps = store.activity(Kind.QUEUE, 600).series["a"]
    assert (steps[-1].ready, steps[-1].running) == (0, 0)
    assert steps[1].ready is None, "nobody looked then"


def test_a_series_has_no_gap_and_names_that_were_asked_for_are_there(store: SqlStore, clock: Clock) -> None:
    enqueue(store, HOSTILE[1], queue=HOSTILE[0])
    roll_up_all(store, clock)
    found = store.activity(Kind.QUEUE, 3600, [HOSTILE[0], "nobody", "\x00", "\ud800"], 300.0)
    assert set(found.series) == {HOSTILE[0], "nobody", "\x00", "\ud800"}
    for steps in found.series.values():
        gaps = {after.at - before.at for before, after in pairwise(steps)}
        assert gaps == {timedelta(minutes=5)}
        assert steps[-1].at <= found.now < steps[-1].at + timedelta(minutes=5)
        assert steps[0].at <= found.now - timedelta(hours=1)
    assert whole(found, HOSTILE[0]).enqueued == 1
    assert whole(found, "nobody") == Step(found.series["nobody"][0].at, ready=0, scheduled=0, running=0)
    assert set(store.activity(Kind.TASK, 3600).series) == {HOSTILE[1]}


def test_what_was_pruned_at_once_is_still_counted_where_it_was(store: SqlStore, clock: Clock) -> None:
    job_in(store, State.SUCCEEDED, queue="brief", task="short")
    clock.move(1)
    store.prune(Group(Kept.JOBS, "brief", State.SUCCEEDED, 0.0), 10)
    roll_up_all(store, clock)
    assert whole(store.activity(Kind.QUEUE, 600), "brief").succeeded == 1
    assert whole(store.activity(Kind.TASK, 600), "short").started == 1


def test_waits_count_from_when_a_job_was_due(store: SqlStore, clock: Clock) -> None:
    job_id = enqueue(store, run_after=clock.now() + timedelta(seconds=30))
    clock.move(33)
    settle_well(store, claim_this(store, job_id), Snoozed(60.0))  # due 60 s later
    clock.move(100)
    settle_well(store, claim_this(store, job_id), Released())  # came back at once
    clock.move(4)
    claim_this(store, job_id)
    roll_up_all(store, clock)
    wait = whole(store.activity(Kind.ALL, 600)).wait
    assert wait.counts == Spread.of([40.0, 4.0]).counts, "the first claim is not known any more"


def test_a_wait_stays_known_when_the_job_was_put_off_and_cancelled_since(store: SqlStore, clock: Clock) -> None:
    job_id = enqueue(store)
    settle_well(store, claim_this(store, job_id), Released())
    clock.move(4)
    settle_well(store, claim_this(store, job_id), Snoozed(3600.0))
    store.cancel([job_id])
    roll_up_all(store, clock)
    assert whole(store.activity(Kind.ALL, 600)).wait.counts == Spread.of([4.0]).counts


def test_minutes_are_kept_for_so_long(store: SqlStore, clock: Clock, by_hand: ByHand) -> None:
    enqueue(store)
    roll_up_all(store, clock)
    assert by_hand.count("holdfast_minutes") > 0
    assert store.forget_minutes(600.0, 100) == 0
    clock.move(1000)
    gone = store.forget_minutes(600.0, 1)
    assert gone == 1
    while gone:
        gone = store.forget_minutes(600.0, 2)
    assert by_hand.count("holdfast_minutes") == 0


def test_what_was_typed_into_the_duty_does_not_stop_it(store: SqlStore, clock: Clock, by_hand: ByHand) -> None:
    store.roll_up("ann")
    for nonsense in ("[]", '{"first": "yesterday"}', '{"first": 7, "at_once": "x"}', '"x"'):
        by_hand("UPDATE holdfast_duties SET detail = :detail WHERE name = 'minutes'", detail=nonsense)
        clock.move(61)
        assert store.roll_up("ann") is not None


def test_hits_and_misses_of_caches_are_summed_by_source(store: SqlStore, clock: Clock) -> None:
    for cache in ({"shop": (3, 1), HOSTILE[0]: (0, 2)}, {"shop": (3, 1)}):
        settle(store, start(store), Succeeded(), cache=cache)
    settle(store, start(store), BROKEN, cache={"shop": (1, 0)})
    settle(store, start(store), HOPELESS)
    roll_up_all(store, clock)
    found = store.activity(Kind.SOURCE, 600)
    assert (whole(found, "shop").cache_hits, whole(found, "shop").cache_misses) == (7, 2)
    assert (whole(found, HOSTILE[0]).cache_hits, whole(found, HOSTILE[0]).cache_misses) == (0, 2)
    total = whole(store.activity(Kind.ALL, 600))
    assert (total.cache_hits, total.cache_misses) == (7, 4)


@pytest.mark.parametrize(
    "asked", [("planet", 60, 60.0), (Kind.ALL, 0, 60.0), (Kind.ALL, 1e9, 60.0), (Kind.ALL, 60, 61.0)]
)
@postgres_later
def test_what_cannot_be_drawn_is_refused(store: SqlStore, asked: tuple[Kind, float, float]) -> None:
    kind, seconds, step = asked
    with pytest.raises(InvalidInput):
        store.activity(kind, seconds, step_seconds=step)


@on_postgres
@pytest.mark.new_tables
def test_a_pruned_job_is_found_by_its_history_also_without_statistics(store: SqlStore) -> None:
    """By the index of what was pruned, in which the job comes last, a roll-up was quadratic in what was pruned."""
    window = {"since": "2026-01-01T00:00:00Z", "until": "2027-01-01T00:00:00Z"}
    with store.database.statement() as transaction:
        transaction.cursor.execute(f"EXPLAIN {sql.HAPPENED.driver_sql('postgresql')}", window, prepare=False)
        plan = "\n".join(row[0] for row in transaction.cursor.fetchall())
    assert "holdfast_events_pkey" in plan
    assert "holdfast_events_pruned" not in plan
