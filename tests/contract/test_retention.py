"""Finished jobs go when they have been kept for long enough, whole histories later, and nothing else ever."""

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import NullPool, create_engine

from holdfast.domain.answers import Operated
from holdfast.domain.errors import Conflict, InvalidInput, RequestFailed
from holdfast.domain.job import NewJob
from holdfast.domain.lifecycle import TERMINAL, State
from holdfast.domain.logs import LogLine, Stream
from holdfast.domain.outcome import Succeeded
from holdfast.domain.retention import DEFAULTS, Group, Kept
from holdfast.maintenance.retention import Retention
from holdfast.stores.ids import new_ids
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.verbs import enqueueing, retaining
from tests.contract.ground import ByHand, Clock, failing, on_postgres, run
from tests.contract.steps import claim_this, enqueue, history, job_in, postgres_later, report, settle_well, start
from tests.servers.waiting import wait_until

DAY = 86_400.0
WEEK = 7 * DAY


@pytest.fixture
def clock(clock: Clock) -> Clock:
    """Ahead of the host: the triggers of SQLite have only the host's clock, and must not overtake the store's."""
    clock.move(DAY)
    return clock


def group(
    what: Kept = Kept.JOBS, state: State = State.SUCCEEDED, keep: float | None = 0.0, queue: str = "default"
) -> Group:
    return Group(what, queue, state, keep)


def prune_all(store: SqlStore) -> list[str]:
    """Whatever the rules in force let go."""
    return [job_id for due in store.retention_due(Kept.JOBS) for job_id in store.prune(due, 500).ids]


def retire_all(store: SqlStore) -> int:
    return sum(store.retire(due, 500).jobs for due in store.retention_due(Kept.HISTORIES))


def left(by_hand: ByHand) -> set[str]:
    return {str(row[0]) for row in by_hand("SELECT id FROM holdfast_jobs")}


# ages


@pytest.mark.parametrize("state", TERMINAL)
def test_a_finished_job_is_kept_for_its_age_and_not_longer(store: SqlStore, clock: Clock, state: State) -> None:
    job_id = job_in(store, state)
    keep = DEFAULTS[Kept.JOBS, state]
    assert keep is not None
    clock.move(keep - 1)
    assert prune_all(store) == []
    clock.move(1)
    assert prune_all(store) == [job_id]
    assert history(store, job_id)[-1] == "pruned"
    assert prune_all(store) == []


@pytest.mark.parametrize("state", [state for state in State if state not in TERMINAL])
def test_a_job_that_is_not_over_stays_however_old(store: SqlStore, clock: Clock, state: State) -> None:
    job_id = job_in(store, state)
    clock.move(3650 * DAY)
    assert prune_all(store) == []
    assert store.job(job_id).state is state


def test_every_state_and_queue_may_have_an_age_of_its_own(store: SqlStore, clock: Clock, by_hand: ByHand) -> None:
    ids = {(queue, state): job_in(store, state, queue=queue) for queue in ("mail", "slow") for state in TERMINAL}
    store.set_retention("jobs", "*", "succeeded", 2 * DAY)
    store.set_retention("jobs", "slow", "succeeded", 5 * DAY)
    store.set_retention("jobs", "mail", "failed", DAY)
    store.set_retention("jobs", "slow", "cancelled", None)
    clock.move(DAY)
    assert prune_all(store) == [ids["mail", State.FAILED]]
    clock.move(DAY)
    assert prune_all(store) == [ids["mail", State.SUCCEEDED]]
    clock.move(3 * DAY)
    assert prune_all(store) == [ids["slow", State.SUCCEEDED]]
    clock.move(2 * DAY)
    assert prune_all(store) == [ids["mail", State.CANCELLED]]
    clock.move(3650 * DAY)
    assert prune_all(store) == [ids["slow", State.FAILED]]
    assert left(by_hand) == {ids["slow", State.CANCELLED]}, "for ever is for ever"


def test_a_rule_that_is_taken_back_gives_way_to_the_next(store: SqlStore) -> None:
    store.set_retention("jobs", "*", "succeeded", DAY)
    store.set_retention("jobs", "default", "succeeded", 2 * DAY)
    assert store.retention_rules().keep_seconds(Kept.JOBS, "default", State.SUCCEEDED) == 2 * DAY
    assert store.unset_retention("jobs", "default", "succeeded")
    assert store.retention_rules().keep_seconds(Kept.JOBS, "default", State.SUCCEEDED) == DAY
    assert store.unset_retention("jobs", "*", "succeeded")
    assert store.retention_rules().keep_seconds(Kept.JOBS, "default", State.SUCCEEDED) == WEEK
    assert not store.unset_retention("jobs", "*", "succeeded"), "there is no such rule any more"


@pytest.mark.parametrize(
    ("what", "queue", "state", "field"),
    [("rows", "*", "failed", "what"), ("jobs", "", "failed", "queue"), ("jobs", "*", "running", "state")],
)
@postgres_later
def test_a_wrong_rule_is_refused_by_name(
    store: SqlStore, by_hand: ByHand, what: str, queue: str, state: str, field: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        store.set_retention(what, queue, state, DAY)
    assert refused.value.field == field
    assert by_hand.count("holdfast_retention") == 0


# a batch


def test_the_oldest_go_first_and_no_more_than_asked_for(store: SqlStore, clock: Clock) -> None:
    ids = []
    for _ in range(5):
        ids.append(job_in(store, State.SUCCEEDED))
        clock.move(1)
    first = store.prune(group(), 3)
    assert (set(first.ids), first.more) == (set(ids[:3]), True)
    second = store.prune(group(), 3)
    assert (set(second.ids), second.more) == (set(ids[3:]), False)


def test_with_a_job_go_its_log_lines_and_artifacts(store: SqlStore, by_hand: ByHand, clock: Clock) -> None:
    ids = [job_in(store, State.SUCCEEDED) for _ in range(2)]
    clock.move(1)
    kept = job_in(store, State.SUCCEEDED)
    for job_id in (*ids, kept):
        store.append_logs([LogLine(job_id, 1, 1, clock.now(), Stream.STDOUT, "hello")])
        by_hand(
            "INSERT INTO holdfast_artifacts (job_id, attempt, name, media_type, bytes, sha256)"
            " VALUES (:id, 1, 'a', 'text/plain', 1, '')",
            id=job_id,
        )
    assert set(store.prune(group(keep=1.0), 500).ids) == set(ids)
    for table in ("holdfast_logs", "holdfast_artifacts"):
        assert [str(row[0]) for row in by_hand(f"SELECT job_id FROM {table}")] == [kept]


def test_jobs_with_many_lines_go_in_smaller_batches(
    store: SqlStore, by_hand: ByHand, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retaining, "MOST_LINES", 5)
    ids = [job_in(store, State.SUCCEEDED) for _ in range(4)]
    store.append_logs([LogLine(i, 1, n, clock.now(), Stream.STDOUT, "line") for i in ids for n in range(1, 4)])
    sizes = []
    more = True
    while more:
        pruned = store.prune(group(), 500)
        sizes.append(len(pruned.ids))
        more = pruned.more
    assert sizes == [1, 1, 1, 1], "two would have six lines"
    assert by_hand.count("holdfast_logs") == by_hand.count("holdfast_jobs") == 0


def test_a_job_that_was_requeued_before_it_is_deleted_stays(store: SqlStore) -> None:
    """Between the reading of an id and its deletion anything may happen to the job."""
    again, gone = job_in(store, State.FAILED), job_in(store, State.FAILED)
    found = store.dead_ids()
    assert {again, gone} == set(found)
    [answer] = store.requeue([again])
    assert answer.did is Operated.REQUEUED
    assert store.purge(found).ids == (gone,)
    assert store.job(again).state is State.PENDING


def test_a_job_that_ended_anew_counts_from_its_new_end(store: SqlStore, clock: Clock) -> None:
    job_id = job_in(store, State.CANCELLED)
    clock.move(WEEK - 1)
    store.requeue([job_id])
    settle_well(store, claim_this(store, job_id), Succeeded())
    clock.move(1)
    assert prune_all(store) == []
    clock.move(WEEK - 1)
    assert prune_all(store) == [job_id]


@on_postgres
def test_locked_rows_are_passed_over(store: SqlStore, by_hand: ByHand) -> None:
    locked, free = job_in(store, State.FAILED), job_in(store, State.FAILED)
    with by_hand.engine.begin() as other:
        run(other, "SELECT 1 FROM holdfast_jobs WHERE id = :id FOR NO KEY UPDATE", id=locked)
        assert store.prune(group(state=State.FAILED), 500).ids == (free,)
        assert store.purge([locked]).ids == ()
    assert store.prune(group(state=State.FAILED), 500).ids == (locked,)


@on_postgres
def test_a_job_that_a_users_foreign_key_is_about_to_point_at_is_not_waited_for(
    store: SqlStore, by_hand: ByHand
) -> None:
    job_id = job_in(store, State.SUCCEEDED)
    with by_hand.engine.begin() as other:
        run(other, "SELECT 1 FROM holdfast_jobs WHERE id = :id FOR KEY SHARE", id=job_id)
        assert store.prune(group(), 500).ids == ()


@on_postgres
def test_a_group_that_a_users_foreign_key_holds_does_not_keep_the_others(store: SqlStore, by_hand: ByHand) -> None:
    held, free = job_in(store, State.SUCCEEDED, queue="a"), job_in(store, State.SUCCEEDED, queue="b")
    by_hand("CREATE TABLE invoices (job_id uuid REFERENCES holdfast_jobs (id))")
    try:
        by_hand("INSERT INTO invoices VALUES (:id)", id=held)
        store.set_retention("jobs", "*", "succeeded", 0.0)
        with pytest.raises(store.database.integrity_errors, match="invoices"):
            list(Retention(lambda: store).jobs())
        assert left(by_hand) == {held}
        assert history(store, free)[-1] == "pruned"
    finally:
        by_hand("DROP TABLE invoices")


@on_postgres
def test_group_that_meets_a_time_limit_does_not_keep_the_others(store: SqlStore, by_hand: ByHand) -> None:
    slow, free = job_in(store, State.SUCCEEDED, queue="a"), job_in(store, State.SUCCEEDED, queue="b")
    store.set_retention("jobs", "*", "succeeded", 0.0)
    with failing(by_hand, "DELETE ON holdfast_jobs", "OLD.queue = 'a'", "57014"):
        with pytest.raises(RequestFailed):
            list(Retention(lambda: store).jobs())
        assert left(by_hand) == {slow}
    assert history(store, free)[-1] == "pruned"
    assert sum(Retention(lambda: store).jobs()) == 1


@pytest.mark.usefixtures("clock")
def test_two_at_once_remove_everything_once(store: SqlStore, open_again: Callable[[], SqlStore]) -> None:
    ids = {job_in(store, State.SUCCEEDED) for _ in range(6)}
    other = open_again()
    gone = [job_id for taker in (store, other, store) for job_id in taker.prune(group(), 2).ids]
    assert sorted(gone) == sorted(ids)
    histories = group(Kept.HISTORIES)
    assert [taker.retire(histories, 2).jobs for taker in (store, other, store, other)] == [2, 2, 2, 0]


def test_groups_take_turns_and_a_rule_that_changes_meanwhile_is_heard(store: SqlStore, by_hand: ByHand) -> None:
    for queue in ("a", "b"):
        for _ in range(4):
            job_in(store, State.SUCCEEDED, queue=queue)
    store.set_retention("jobs", "*", "succeeded", 0.0)
    steps = Retention(lambda: store, batch=1).jobs()
    assert [next(steps) for _ in range(4)] == [1] * 4
    assert [by_hand.count("holdfast_jobs", f"queue = '{queue}'") for queue in ("a", "b")] == [2, 2]
    store.set_retention("jobs", "a", "succeeded", None)
    assert sum(steps) == 2
    assert [by_hand.count("holdfast_jobs", f"queue = '{queue}'") for queue in ("a", "b")] == [2, 0]


# histories


def test_a_history_is_kept_for_its_own_age_after_its_job_was_pruned(
    store: SqlStore, clock: Clock, by_hand: ByHand
) -> None:
    job_id = job_in(store, State.SUCCEEDED)
    assert store.prune(group(), 500).ids == (job_id,)
    clock.move(90 * DAY - 1)
    assert retire_all(store) == 0
    assert history(store, job_id) == ["enqueued", "claimed", "succeeded", "pruned"]
    clock.move(1)
    assert retire_all(store) == 1
    assert history(store, job_id) == []
    assert by_hand.count("holdfast_events") == 0


def test_a_history_has_the_rule_of_the_queue_and_state_its_job_had(store: SqlStore, clock: Clock) -> None:
    mail = job_in(store, State.FAILED, queue="mail")
    slow = job_in(store, State.FAILED, queue="slow")
    for queue in ("mail", "slow"):
        store.prune(group(state=State.FAILED, queue=queue), 500)
    store.set_retention("histories", "mail", "failed", DAY)
    store.set_retention("histories", "*", "succeeded", 0.0)
    clock.move(DAY)
    assert retire_all(store) == 1
    assert (history(store, mail), history(store, slow)[-1]) == ([], "pruned")
    store.set_retention("histories", "*", "failed", None)
    clock.move(3650 * DAY)
    assert retire_all(store) == 0


def test_a_history_that_does_not_say_its_queue_has_the_general_rule(
    store: SqlStore, clock: Clock, by_hand: ByHand
) -> None:
    """As pruned rows did before there was retention."""
    job_id = job_in(store, State.SUCCEEDED)
    store.prune(group(), 500)
    with by_hand.engine.begin() as connection:
        if by_hand.is_postgres:
            run(connection, "SET LOCAL session_replication_role = replica")
        else:
            run(connection, "DROP TRIGGER holdfast_events_update")
        run(connection, "UPDATE holdfast_events SET detail = NULL WHERE event = 'pruned'")
    clock.move(90 * DAY)
    assert store.retention_due(Kept.HISTORIES) == [group(Kept.HISTORIES, keep=90 * DAY, queue="")]
    assert retire_all(store) == 1
    assert history(store, job_id) == []


def test_with_a_history_go_its_refusals_and_what_else_speaks_of_the_job(
    store: SqlStore, by_hand: ByHand, clock: Clock
) -> None:
    claimed = start(store)
    settle_well(store, claimed, Succeeded())
    store.settle([report(claimed, Succeeded({"another": "result"}))])
    assert len(store.refusals(claimed.job_id)) == 1
    store.append_logs([LogLine(claimed.job_id, 1, 1, clock.now(), Stream.STDOUT, "hello")])
    by_hand("DELETE FROM holdfast_jobs")
    store.retire(group(Kept.HISTORIES), 500)
    assert store.refusals(claimed.job_id) == []
    assert by_hand.count("holdfast_logs") == by_hand.count("holdfast_events") == 0


@pytest.mark.usefixtures("clock")
def test_long_histories_go_in_smaller_batches(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retaining, "MOST_EVENTS", 9)
    for _ in range(5):
        job_in(store, State.SUCCEEDED)
    store.prune(group(), 500)
    answers = [store.retire(group(Kept.HISTORIES), 500) for _ in range(4)]
    assert [(answer.jobs, answer.events, answer.more) for answer in answers] == [
        (2, 8, True),
        (2, 8, True),
        (1, 4, False),
        (0, 0, False),
    ]


# the watermark


def test_the_watermark_tells_how_far_histories_were_retired(store: SqlStore, clock: Clock) -> None:
    assert store.histories_retired() is None
    early = job_in(store, State.SUCCEEDED)
    store.prune(group(), 500)
    pruned_at = store.events(early)[-1].at
    clock.move(DAY)
    assert store.retire(group(Kept.HISTORIES), 500).jobs == 1
    mark = store.histories_retired()
    assert mark is not None
    assert (mark.through, mark.jobs, mark.events) == (pruned_at, 1, 4)


def test_the_watermark_never_goes_back(store: SqlStore, clock: Clock) -> None:
    job_in(store, State.SUCCEEDED, queue="early")
    store.prune(group(queue="early"), 500)
    clock.move(DAY)
    job_in(store, State.SUCCEEDED, queue="late")
    store.prune(group(queue="late"), 500)
    store.retire(group(Kept.HISTORIES, queue="late"), 500)
    late = store.histories_retired()
    assert late is not None
    assert late.through == clock.now()
    store.retire(group(Kept.HISTORIES, queue="early"), 500)
    mark = store.histories_retired()
    assert mark is not None
    assert (mark.through, mark.jobs, mark.events) == (late.through, 2, 8)


def test_a_history_that_is_retired_by_hand_moves_the_watermark(store: SqlStore, by_hand: ByHand, clock: Clock) -> None:
    job_id = job_in(store, State.FAILED)
    store.prune(group(state=State.FAILED), 500)
    by_hand("INSERT INTO holdfast_retired_histories (job_id) VALUES (:id)", id=str(uuid.uuid4()))
    assert store.histories_retired() is None, "nothing was retired"
    assert by_hand.count("holdfast_retired_histories") == 0
    by_hand("INSERT INTO holdfast_retired_histories (job_id) VALUES (:id)", id=job_id)
    mark = store.histories_retired()
    assert mark is not None
    assert (mark.through, mark.jobs, mark.events) == (clock.now(), 1, 4)


@on_postgres
def test_nobody_waits_at_the_door(store: SqlStore, by_hand: ByHand) -> None:
    for _ in range(2):
        job_in(store, State.SUCCEEDED)
        store.prune(group(), 500)
    assert store.retire(group(Kept.HISTORIES), 1).jobs == 1
    with by_hand.engine.begin() as other:
        run(other, "SELECT 1 FROM holdfast_meta WHERE key = 'histories_retired' FOR UPDATE")
        assert store.retire(group(Kept.HISTORIES), 1).jobs == 0
    assert store.retire(group(Kept.HISTORIES), 1).jobs == 1


# ids of retired histories


def retired_job(store: SqlStore, job_id: str | None = None) -> str:
    """A job that has run, and of which neither row nor history is left."""
    gone = job_in(store, State.SUCCEEDED, id=job_id)
    assert store.prune(group(), 500).ids == (gone,)
    assert store.retire(group(Kept.HISTORIES), 500).jobs == 1
    return gone


@pytest.mark.parametrize("given", [str(uuid.uuid4()), new_ids(1)[0], None], ids=["v4", "v7", "generated"])
def test_an_id_whose_history_was_retired_is_refused(store: SqlStore, clock: Clock, given: str | None) -> None:
    """Its attempts would start at 1 again, and (job, attempt) stands for one execution."""
    gone = retired_job(store, given)
    with pytest.raises(Conflict, match=f"{gone} was a job whose history has since been retired; use a new one"):
        enqueue(store, id=gone)
    with pytest.raises(Conflict, match=r"histor(y|ies)"):
        store.enqueue_many([NewJob(task="other"), NewJob(task="work", id=gone)])
    assert not store.jobs().items
    clock.move(3650 * DAY)
    with pytest.raises(Conflict, match=r"histor(y|ies)"):
        enqueue(store, id=gone)


def test_an_id_whose_history_was_retired_is_refused_in_a_users_transaction(store: SqlStore, by_hand: ByHand) -> None:
    gone = retired_job(store, str(uuid.uuid4()))
    with by_hand.engine.begin() as connection, pytest.raises(Conflict, match=r"histor(y|ies)"):
        store.enqueue(NewJob(task="work", id=gone), connection)
    assert not store.jobs().items


@on_postgres  # SQLite has one writer at a time
def test_an_id_is_refused_when_its_job_was_removed_between_check_and_insert(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch, open_again: Callable[[], SqlStore]
) -> None:
    """The check that runs before the insert saw the job; the one after it sees that the history is gone."""
    given, other = job_in(store, State.SUCCEEDED, id=str(uuid.uuid4())), open_again()
    reused = enqueueing._reused

    def remove_then_reused(*args: Any) -> Any:
        assert other.prune(group(), 500).ids == (given,)
        assert other.retire(group(Kept.HISTORIES), 500).jobs == 1
        monkeypatch.setattr(enqueueing, "_reused", reused)
        return reused(*args)

    monkeypatch.setattr(enqueueing, "_reused", remove_then_reused)
    with pytest.raises(Conflict, match=r"histor(y|ies)"):
        enqueue(store, id=given)
    assert not store.jobs().items


@on_postgres
@pytest.mark.parametrize("verb", ["enqueue", "enqueue_many", "replay"])
def test_an_id_is_refused_when_its_job_was_pruned_between_check_and_insert(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch, open_again: Callable[[], SqlStore], verb: str
) -> None:
    """The history is still there, and the insert would begin it anew."""
    original = job_in(store, State.PENDING)
    given, other = job_in(store, State.SUCCEEDED, id=str(uuid.uuid4())), open_again()
    reused = enqueueing._reused

    def prune_then_reused(*args: Any) -> Any:
        monkeypatch.setattr(enqueueing, "_reused", reused)
        assert other.prune(group(), 500).ids == (given,)
        return reused(*args)

    monkeypatch.setattr(enqueueing, "_reused", prune_then_reused)
    spec = store.job(given)
    calls: dict[str, Callable[[], Any]] = {
        "enqueue": lambda: store.enqueue(NewJob(task=spec.task, payload=spec.payload, id=given)),
        "enqueue_many": lambda: store.enqueue_many(
            [NewJob(task=spec.task, payload=spec.payload, id=given), NewJob(task="work")]
        ),
        "replay": lambda: store.replay(original, given),
    }
    with pytest.raises(Conflict, match="has since been pruned"):
        calls[verb]()
    assert [job.id for job in store.jobs().items] == [original]


@pytest.mark.usefixtures("clock")
def test_rows_of_retired_ids_do_not_grow_with_the_jobs(
    store: SqlStore, by_hand: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Generated ids are UUIDv7s: beyond the newest ones, one id stands for all older ones."""
    monkeypatch.setattr(retaining, "MAX_RETIRED_IDS", 2)
    random, unused, future = str(uuid.uuid4()), new_ids(1)[0], "ffffffff-ffff-7fff-bfff-ffffffffffff"
    alive = job_in(store, State.PENDING, id=new_ids(1)[0])
    gone = [retired_job(store, job_id) for job_id in (random, future, None, None, None, None)]
    kept = {str(row[0]) for row in by_hand("SELECT job_id FROM holdfast_retired_histories")}
    assert kept == {random, future, *gone[-2:]}
    for job_id in gone:
        with pytest.raises(Conflict, match=r"histor(y|ies)"):
            enqueue(store, id=job_id)
    with pytest.raises(Conflict, match="cannot rule out that it was a job; use a new one"):
        enqueue(store, id=unused)
    assert enqueue(store, id=alive) == alive, "an older id that is still there is answered"
    assert store.enqueue(NewJob(task="work", id=new_ids(1)[0])).created
    assert store.enqueue(NewJob(task="work", id=str(uuid.uuid4()))).created


def test_an_id_that_was_inserted_by_hand_again_can_be_retired_again(store: SqlStore, by_hand: ByHand) -> None:
    gone = retired_job(store, str(uuid.uuid4()))
    insert = "INSERT INTO holdfast_jobs (id, task) VALUES (:id, 'work')"
    if not by_hand.is_postgres:
        with by_hand.refused("history has been retired"):
            by_hand(insert, id=gone)
        return
    by_hand(insert, id=gone)
    settle_well(store, claim_this(store, gone), Succeeded())
    assert store.prune(group(), 500).ids == (gone,)
    assert store.retire(group(Kept.HISTORIES), 500).jobs == 1


@on_postgres
def test_first_histories_are_retired_by_one_of_two_processes(store: SqlStore, by_hand: ByHand, direct_url: str) -> None:
    """There is no watermark yet, so neither of them holds its lock."""
    gone = job_in(store, State.SUCCEEDED)
    assert store.prune(group(), 500).ids == (gone,)
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with create_engine(direct_url, poolclass=NullPool).begin() as first, ThreadPoolExecutor() as threads:
        run(first, "INSERT INTO holdfast_retired_histories VALUES (:id)", id=gone)
        second = threads.submit(store.retire, group(Kept.HISTORIES), 500)
        wait_until(lambda: by_hand(waiting) == [(1,)], what="the second one waits for the first")
        first.commit()
        assert second.result().jobs == 0
    assert by_hand("SELECT value::json ->> 'jobs' FROM holdfast_meta WHERE key = 'histories_retired'") == [("1",)]


# what else is old


def test_old_ticks_go_with_the_histories(store: SqlStore, by_hand: ByHand, clock: Clock) -> None:
    for _ in range(3):
        clock.move(1)
        by_hand(
            "INSERT INTO holdfast_schedule_ticks (schedule, planned_at, fired_at, outcome)"
            " VALUES ('hourly', :at, :at, 'fired')",
            at=clock.now() if by_hand.is_postgres else clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        )
    assert store.forget_ticks(1.0, 1) == 1
    assert store.forget_ticks(1.0, 500) == 1
    assert store.forget_ticks(1.0, 500) == 0
    assert by_hand.count("holdfast_schedule_ticks") == 1


def test_what_is_on_record_of_sources_goes_with_the_histories(store: SqlStore, clock: Clock) -> None:
    for rate in ("1/m", "2/m", "3/m"):
        clock.move(1)
        store.set_source("shop", rate=rate)
    assert store.forget_source_events(3.0, 500) == 0
    assert store.forget_source_events(1.0, 1) == 1
    assert store.forget_source_events(1.0, 500) == 1
    assert store.forget_source_events(1.0, 500) == 0
    [event] = store.source_events("shop").items
    assert (event.detail or {})["rate_limit_per_minute"] == 3


def test_old_refusals_of_jobs_that_nobody_knows_go(store: SqlStore, clock: Clock, by_hand: ByHand) -> None:
    known = start(store)
    settle_well(store, known, Succeeded())
    store.settle([report(known, Succeeded({"another": "result"}))])
    for _ in range(3):
        stranger = start(store)
        by_hand("UPDATE holdfast_jobs SET state = 'cancelled' WHERE id = :id", id=stranger.job_id)
        by_hand("DELETE FROM holdfast_jobs WHERE id = :id", id=stranger.job_id)
        by_hand("INSERT INTO holdfast_retired_histories (job_id) VALUES (:id)", id=stranger.job_id)
        store.settle([report(stranger, Succeeded())])
    assert by_hand.count("holdfast_refusals") == 4
    assert forget_refusals(store, DAY) == 0
    clock.move(DAY)
    assert forget_refusals(store, DAY) == 3
    assert [refusal.job_id for refusal in store.refusals()] == [known.job_id]


def forget_refusals(store: SqlStore, keep: float) -> int:
    """All pages of them, of one row each."""
    gone, after = store.forget_refusals(keep, None, 1)
    while after is not None:
        more, after = store.forget_refusals(keep, after, 1)
        gone += more
    return gone


# the dry run


def test_a_preview_changes_nothing_and_tells_what_a_run_does(store: SqlStore, clock: Clock, by_hand: ByHand) -> None:
    for queue in ("mail", "slow"):
        for state in TERMINAL:
            job_in(store, state, queue=queue)
            clock.move(60)
    store.set_retention("histories", "mail", "succeeded", 0.0)
    clock.move(WEEK)
    prune_all(store)
    for _ in range(2):
        job_in(store, State.CANCELLED, queue="mail")
    job_in(store, State.SUCCEEDED, queue="mail")
    clock.move(WEEK)
    before = by_hand.everything()
    told = {(p.what, p.queue, p.state): (p.count, p.events) for p in store.retention_preview()}
    assert by_hand.everything() == before
    histories = {
        (due.what, due.queue, due.state): (lambda r: (r.jobs, r.events))(store.retire(due, 500))
        for due in store.retention_due(Kept.HISTORIES)
    }
    jobs = {
        (due.what, due.queue, due.state): (len(store.prune(due, 500).ids), 0) for due in store.retention_due(Kept.JOBS)
    }
    assert told == jobs | histories
    assert told == {
        (Kept.HISTORIES, "mail", State.SUCCEEDED): (1, 4),
        (Kept.JOBS, "mail", State.CANCELLED): (2, 0),
        (Kept.JOBS, "mail", State.SUCCEEDED): (1, 0),
    }


def test_a_preview_stops_counting_somewhere_and_says_so(store: SqlStore, clock: Clock) -> None:
    first = job_in(store, State.SUCCEEDED)
    oldest = store.job(first).finished_at
    clock.move(1)
    job_in(store, State.SUCCEEDED)
    clock.move(WEEK)
    [whole] = store.retention_preview(most=10)
    assert (whole.count, whole.counted, whole.oldest_at) == (2, True, oldest)
    [part] = store.retention_preview(most=2)
    assert (part.count, part.counted, part.oldest_at) == (2, False, oldest)


# turns


def test_a_turn_has_one_winner_per_period(store: SqlStore, clock: Clock, open_again: Callable[[], SqlStore]) -> None:
    other = open_again()
    assert store.take_turn("sweep", "ann", 60)
    assert not other.take_turn("sweep", "bob", 60)
    assert not store.take_turn("sweep", "ann", 60), "not even for the one who has it"
    clock.move(60)
    assert other.take_turn("sweep", "bob", 60)
    assert not store.take_turn("sweep", "ann", 60)
    assert store.take_turn("paint", "ann", 60), "another duty is another matter"


def test_a_turn_is_kept_by_renewing_it(store: SqlStore, clock: Clock) -> None:
    assert not store.keep_turn("sweep", "ann"), "who never took it does not have it"
    assert store.take_turn("sweep", "ann", 60)
    clock.move(50)
    assert store.keep_turn("sweep", "ann")
    clock.move(50)
    assert not store.take_turn("sweep", "bob", 60)
    clock.move(10)
    assert store.take_turn("sweep", "bob", 60)
    assert not store.keep_turn("sweep", "ann")
    assert [(turn.name, turn.holder) for turn in store.turns()] == [("sweep", "bob")]


def test_a_turn_from_a_clock_that_was_ahead_does_not_last(store: SqlStore, clock: Clock) -> None:
    clock.move(3600)
    assert store.take_turn("sweep", "ann", 60)
    clock.move(-3600)
    assert store.take_turn("sweep", "bob", 60)


# plans


def test_a_checkpoint_is_nothing_to_do_for_a_server_or_a_short_log(store: SqlStore) -> None:
    enqueue(store)
    assert store.checkpoint() is False
