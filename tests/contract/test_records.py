"""Records: one row for a key, the stronger one stays, and only who holds the lease may write."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from holdfast.domain import retention
from holdfast.domain.answers import Beat
from holdfast.domain.errors import InvalidInput, LeaseLost, NotFound, StoreUnavailable, TooLarge
from holdfast.domain.outcome import Succeeded
from holdfast.domain.record import MAX_CALL_CHARACTERS, MAX_DATA_BYTES, MAX_RECORDS, SINGLE_KEY, Kept, NewRecord
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.statements import records as sql
from holdfast.stores.verbs import records as verbs
from tests.contract.ground import ByHand, Clock, on_postgres
from tests.contract.steps import beat, lose_lease, settle_well, start
from tests.servers.waiting import DEADLINE_SECONDS, wait_until

NOBODY = "0190aaaa-0000-7000-8000-000000000000"


def new(key: str = "ext_1", strength: float = 0.0, data: Any = None, **more: Any) -> NewRecord:
    given = {"scope": "coin", "source": "shop", "data": data, **more}
    return NewRecord(dedupe_key=key, strength=strength, **given)


def kept(store: SqlStore, records: Sequence[NewRecord], lease: Beat | None = None) -> list[Kept]:
    return [written.kept for written in store.write_records(records, lease)]


def stored(store: SqlStore, **wanted: Any) -> dict[str, Any]:
    return {record.dedupe_key: record.data for record in store.records(**wanted).items}


# which one stays


def test_a_record_is_created_and_read_back(store: SqlStore, clock: Clock) -> None:
    data = {"title": "1881-S", "price": 19.9, "n": 2**70, "ü": [None, "\U0001f600"]}
    [written] = store.write_records([new("ext_7", 0.5, data, external_id="7")])
    record = store.record(written.id)
    assert (written.kept, written.dedupe_key) == (Kept.CREATED, "ext_7")
    assert (record.id, record.scope, record.source, record.dedupe_key) == (written.id, "coin", "shop", "ext_7")
    assert (record.external_id, record.strength, record.data) == ("7", 0.5, data)
    assert (record.job_id, record.attempt) == (None, None)
    assert record.created_at == record.updated_at == clock.now()
    with pytest.raises(NotFound, match=NOBODY):
        store.record(NOBODY)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [(0.0, 1.0, Kept.REPLACED), (1.0, 0.0, Kept.EXISTING), (1.0, 1.0, Kept.EXISTING), (-2.0, -1.0, Kept.REPLACED)],
)
def test_only_the_strictly_stronger_one_replaces(
    store: SqlStore, clock: Clock, first: float, second: float, expected: Kept
) -> None:
    [one] = store.write_records([new(strength=first, data="first", external_id="a")])
    before = store.record(one.id)
    clock.move(60.0)
    [two] = store.write_records([new(strength=second, data="second", external_id="b")])
    assert (two.kept, two.id) == (expected, one.id), "the row keeps its id"
    after = store.record(one.id)
    if expected is Kept.EXISTING:
        assert after == before
    else:
        assert (after.data, after.external_id, after.strength) == ("second", "b", second)
        assert (after.created_at, after.updated_at) == (before.created_at, clock.now())


def test_a_key_is_of_its_scope_and_source(store: SqlStore) -> None:
    places = [("a", "x"), ("a", "y"), ("b", "x"), ("a", "")]
    batch = [new(scope=scope, source=source, data=f"{scope}{source}") for scope, source in places]
    assert kept(store, batch) == [Kept.CREATED] * 4
    assert len({record.id for record in store.records().items}) == 4


def test_the_one_of_a_scope_is_always_replaced(store: SqlStore) -> None:
    def single(data: Any) -> NewRecord:
        return NewRecord(scope="coin", dedupe_key=SINGLE_KEY, data=data, replace=True)

    assert kept(store, [single(1)]) == [Kept.CREATED]
    assert kept(store, [single(2)]) == [Kept.REPLACED]
    assert kept(store, [NewRecord(scope="coin", dedupe_key=SINGLE_KEY, data=3, strength=0.0)]) == [Kept.EXISTING]
    assert kept(store, [single(None)]) == [Kept.REPLACED]
    [record] = store.records(scope="coin").items
    assert (record.source, record.data) == ("", None)


def test_of_a_batch_the_strongest_counts_and_the_first_among_equals(store: SqlStore) -> None:
    batch = [new("a", 1, "a1"), new("b", 0, "b0"), new("a", 3, "a3"), new("a", 3, "later"), new("a", 2, "a2")]
    written = store.write_records(batch)
    assert [one.kept for one in written] == [*[Kept.EXISTING, Kept.CREATED, Kept.CREATED], *[Kept.EXISTING] * 2]
    assert [one.dedupe_key for one in written] == ["a", "b", "a", "a", "a"]
    assert len({one.id for one in written if one.dedupe_key == "a"}) == 1
    assert stored(store) == {"a": "a3", "b": "b0"}
    assert kept(store, batch) == [Kept.EXISTING] * 5, "sent again it changes nothing"


def test_a_batch_with_replacing_ones_is_as_if_one_after_the_other(store: SqlStore) -> None:
    store.write_records([new("a", 9, "old")])
    batch = [new("a", 5, "weak"), new("a", 1, "reset", replace=True), new("a", 2, "last"), new("a", 2, "too late")]
    assert kept(store, batch) == [Kept.EXISTING, Kept.EXISTING, Kept.REPLACED, Kept.EXISTING]
    assert stored(store) == {"a": "last"}


def test_a_mixed_batch_answers_in_its_order(store: SqlStore) -> None:
    store.write_records([new("weak", 1, 0), new("strong", 9, 0)])
    batch = [new("strong", 5, 1), new("fresh", 5, 1), new("weak", 5, 1)]
    written = store.write_records(batch)
    assert [one.kept for one in written] == [Kept.EXISTING, Kept.CREATED, Kept.REPLACED]
    assert [store.record(one.id).dedupe_key for one in written] == ["strong", "fresh", "weak"]
    assert stored(store) == {"strong": 0, "fresh": 1, "weak": 1}


def test_a_thousand_are_one_batch(store: SqlStore) -> None:
    batch = [new(f"k{number}", number % 7, {"n": number}) for number in range(MAX_RECORDS)]
    assert kept(store, batch) == [Kept.CREATED] * MAX_RECORDS
    stronger = [new(f"k{number}", 3, "new") for number in range(MAX_RECORDS)]
    answers = kept(store, stronger)
    assert answers == [Kept.REPLACED if number % 7 < 3 else Kept.EXISTING for number in range(MAX_RECORDS)]
    assert store.write_records([]) == []


def test_any_json_value_is_data(store: SqlStore) -> None:
    values: list[Any] = [None, False, 0, "", "007", 1e300, -0.5, 2**70, [], {}, [[{"a": None}]], "null", "{}"]
    ids = [one.id for one in store.write_records([new(f"k{i}", 0, value) for i, value in enumerate(values)])]
    found = [store.record(record_id).data for record_id in ids]
    assert found == values
    assert [type(value) for value in found] == [type(value) for value in values]


# what is refused


def test_what_cannot_be_stored_is_named_and_nothing_is(store: SqlStore) -> None:
    long = "x" * 201
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("scope", {"scope": ""}),
        ("scope", {"scope": long}),
        ("scope", {"scope": "a\x00"}),
        ("scope", {"scope": None}),
        ("source", {"source": long}),
        ("source", {"source": "a\nb"}),
        ("source", {"source": None}),
        ("dedupe_key", {"dedupe_key": ""}),
        ("dedupe_key", {"dedupe_key": "hash_" + long}),
        ("dedupe_key", {"dedupe_key": "ext_" + long}),
        ("external_id", {"external_id": long}),
        ("external_id", {"external_id": 7}),
        ("strength", {"strength": float("nan")}),
        ("strength", {"strength": float("inf")}),
        ("strength", {"strength": 10**400}),
        ("strength", {"strength": True}),
        ("strength", {"strength": "1"}),
        ("data", {"data": float("nan")}),
        ("data", {"data": b""}),
        ("data.a", {"data": {"a": "\ud800"}}),
        ("replace", {"replace": 1}),
    ]
    for field, change in wrong:
        bad = NewRecord(**{"scope": "coin", "source": "shop", "dedupe_key": "k", "data": 1, **change})
        with pytest.raises(InvalidInput) as alone:
            store.write_records([bad])
        assert alone.value.field == field
        with pytest.raises(InvalidInput) as among:
            store.write_records([new("good"), bad])
        assert among.value.field == f"records.1.{field}"
    with pytest.raises(InvalidInput, match=r"1,000 at once, got 1,001"):
        store.write_records([new(f"k{number}") for number in range(MAX_RECORDS + 1)])
    assert store.records().items == ()


def test_data_has_a_limit_and_so_has_a_call(store: SqlStore) -> None:
    largest = "x" * (MAX_DATA_BYTES - 2)
    assert kept(store, [new(data=largest, external_id="e" * 200, scope="s" * 200)]) == [Kept.CREATED]
    with pytest.raises(TooLarge) as refused:
        store.write_records([new(data="é" * (MAX_DATA_BYTES // 2))])
    assert (refused.value.field, refused.value.limit_bytes) == ("data", MAX_DATA_BYTES)
    too_many = [new(f"k{number}", data=largest) for number in range(MAX_CALL_CHARACTERS // len(largest) + 1)]
    with pytest.raises(TooLarge) as in_all:
        store.write_records(too_many)
    assert in_all.value.field == "records"
    assert len(store.records().items) == 1


# the lease


def test_who_holds_the_lease_writes_and_is_on_record_with_it(store: SqlStore) -> None:
    claimed = start(store)
    store.write_records([new("before", data=0)])
    written = store.write_records([new("mine", data=1), new("before", 1, data=1)], beat(claimed))
    assert [one.kept for one in written] == [Kept.CREATED, Kept.REPLACED]
    for one in written:
        record = store.record(one.id)
        assert (record.job_id, record.attempt) == (claimed.job_id, claimed.attempt)
    again = store.write_records([new("token", data=1)], replace(beat(claimed), attempt=0, by_token=True))
    assert store.record(again[0].id).attempt == claimed.attempt
    assert store.heartbeat([beat(claimed)])[0].reason is None, "and holds it still"
    assert store.refusals() == []


@pytest.mark.parametrize("how", ["settled", "reaped", "forged", "another attempt", "another credential", "unknown"])
def test_who_does_not_hold_the_lease_writes_nothing_and_that_is_on_record(
    store: SqlStore, clock: Clock, how: str
) -> None:
    claimed = start(store)
    lease, reason = beat(claimed), "lease_lost"
    store.write_records([new("there", 1, "untouched")])
    match how:
        case "settled":
            settle_well(store, claimed, Succeeded())
        case "reaped":
            lose_lease(store, clock, claimed)
        case "forged":
            lease, reason = replace(lease, lease_token="0" * 64), "unknown_lease"
        case "another attempt":
            lease, reason = replace(lease, attempt=claimed.attempt + 1), "unknown_lease"
        case "another credential":
            lease, reason = replace(lease, credential="mallory"), "unknown_lease"
        case _:
            lease, reason = replace(lease, job_id=NOBODY), "unknown_job"
    for _ in range(2):
        with pytest.raises(LeaseLost, match=reason):
            store.write_records([new("new", 9), new("there", 9, "stolen")], lease)
    assert stored(store) == {"there": "untouched"}
    [refusal] = [found for found in store.refusals(lease.job_id) if found.verb == "record"]
    assert (refusal.reason, refusal.worker, refusal.count, refusal.attempt) == (reason, "ann", 2, lease.attempt)


def test_bad_input_is_told_before_the_lease_is_looked_at(store: SqlStore) -> None:
    claimed = start(store)
    with pytest.raises(InvalidInput):
        store.write_records([new(data=float("nan"))], replace(beat(claimed), lease_token="forged"))
    assert store.refusals() == []


@on_postgres
def test_a_row_that_is_locked_is_busy_and_not_lost(store: SqlStore, by_hand: ByHand) -> None:
    claimed = start(store)
    with by_hand.engine.begin() as connection:
        connection.exec_driver_sql("SELECT 1 FROM holdfast_jobs FOR UPDATE")
        with pytest.raises(StoreUnavailable, match="row locked"):
            store.write_records([new()], beat(claimed))
    assert store.records().items == ()
    assert store.refusals() == []
    assert kept(store, [new()], beat(claimed)) == [Kept.CREATED]


@on_postgres
def test_a_row_that_is_locked_for_a_moment_is_asked_for_again(
    store: SqlStore, by_hand: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed = start(store)
    connection = by_hand.engine.connect()
    connection.exec_driver_sql("SELECT 1 FROM holdfast_jobs FOR NO KEY UPDATE")
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            connection.rollback()

    monkeypatch.setattr("holdfast.stores.verbs.records.time.sleep", pause)
    assert kept(store, [new()], beat(claimed)) == [Kept.CREATED]
    assert len(pauses) == 2
    connection.close()


@on_postgres
def test_while_the_records_are_being_committed_the_lease_cannot_end(
    store: SqlStore, open_again: Callable[[], SqlStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the test of the lease and the commit a report comes: it finds the row locked."""
    claimed, other = start(store), open_again()
    answers: list[Any] = []
    held = verbs._is_held

    def held_and_then(transaction: Any, lease: Any) -> bool:
        found = held(transaction, lease)
        answers.extend(other.heartbeat([beat(claimed)]))
        return found

    monkeypatch.setattr(verbs, "_is_held", held_and_then)
    assert kept(store, [new()], beat(claimed)) == [Kept.CREATED]
    assert [answer.status for answer in answers] == ["busy"]
    settle_well(other, claimed, Succeeded())


# races


@pytest.mark.parametrize("stronger_first", [True, False])
def test_two_that_race_on_one_key_keep_the_stronger(
    store: SqlStore, open_again: Callable[[], SqlStore], stronger_first: bool
) -> None:
    other, gate = open_again(), threading.Barrier(2)
    rounds = 60
    mine, theirs = (9.0, 1.0) if stronger_first else (1.0, 9.0)

    def write(arguments: tuple[SqlStore, float]) -> list[Kept]:
        store, strength = arguments
        answers = []
        for number in range(rounds):
            gate.wait()
            answers += kept(store, [new(f"k{number}", strength, strength)])
        return answers

    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(write, [(store, mine), (other, theirs)])
    strong, weak = (first, second) if stronger_first else (second, first)
    assert set(stored(store, limit=1000).values()) == {9.0}
    for stronger, weaker in zip(strong, weak, strict=True):
        told = (stronger, weaker)
        assert told in ((Kept.CREATED, Kept.EXISTING), (Kept.REPLACED, Kept.CREATED)), "each is told the truth"
    assert len(strong) == rounds == len(stored(store, limit=1000))


def test_batches_that_overlap_in_any_order_never_stop_each_other(
    store: SqlStore, open_again: Callable[[], SqlStore]
) -> None:
    """Four writers with the same keys in opposite orders, and one who deletes them."""
    stores = [store, *(open_again() for _ in range(4))]
    gate = threading.Barrier(len(stores))
    keys = [f"k{number}" for number in range(40)]

    def act(number: int) -> None:
        order = keys if number % 2 else list(reversed(keys))
        gate.wait()
        for turn in range(12):
            if number == 4:
                stores[number].delete_records("coin")
            else:
                stores[number].write_records([new(key, turn * 4 + number, number) for key in order])

    with ThreadPoolExecutor(len(stores)) as threads:
        list(threads.map(act, range(len(stores))))
    store.write_records([new(key, 1_000, "last") for key in keys])
    assert set(stored(store, limit=1000).values()) == {"last"}


# reading


def test_a_list_is_the_newest_first_and_continued(store: SqlStore) -> None:
    for number in range(5):
        store.write_records([new(f"k{number}", data=number)])
    first = store.records(limit=2)
    second = store.records(limit=2, after=first.after)
    last = store.records(limit=2, after=second.after)
    assert [[record.data for record in page.items] for page in (first, second, last)] == [[4, 3], [2, 1], [0]]
    assert last.after is None
    assert store.records(limit=5).after is None


def test_a_list_can_be_narrowed(store: SqlStore) -> None:
    claimed = start(store)
    store.write_records(
        [new("a", scope="s", source="x"), new("b", scope="s", source="y"), new("a", scope="t", source="x")]
    )
    store.write_records([new("mine", scope="s", source="x")], beat(claimed))
    store.write_records([NewRecord(scope="s", dedupe_key=SINGLE_KEY, data=0, replace=True)])

    def found(**wanted: Any) -> list[str]:
        return sorted(record.dedupe_key for record in store.records(**wanted).items)

    assert found(scope="s") == ["a", "b", "mine", SINGLE_KEY]
    assert found(scope="s", source="x") == ["a", "mine"]
    assert found(source="x") == ["a", "a", "mine"]
    assert found(scope="s", source="") == [SINGLE_KEY]
    assert found(job_id=claimed.job_id) == found(job_id=claimed.job_id, scope="s", source="x") == ["mine"]
    assert found(job_id=claimed.job_id, scope="t") == []
    assert found(scope="s", dedupe_key="a") == ["a"]
    assert found(job_id=claimed.job_id, dedupe_key="mine") == ["mine"]
    assert found(scope="nowhere") == []


def test_a_page_ends_before_it_becomes_too_large(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "PAGE_BYTES", 2_500)
    store.write_records([new(f"k{number}", data="x" * 998) for number in range(7)])
    pages, after = [], None
    while True:
        page = store.records(limit=5, after=after)
        pages.append(len(page.items))
        after = page.after
        if after is None:
            break
    assert pages == [3, 3, 1], "one that begins within the limit is whole"


def test_a_wrong_question_is_refused_by_name(store: SqlStore) -> None:
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("limit", {"limit": 0}),
        ("limit", {"limit": 1001}),
        ("after", {"after": "x"}),
        ("job_id", {"job_id": "x"}),
        ("scope", {"scope": ""}),
        ("source", {"source": "a\x00"}),
        ("dedupe_key", {"scope": "s", "dedupe_key": ""}),
        ("dedupe_key", {"dedupe_key": "k"}),
        ("dedupe_key", {"dedupe_key": "k", "source": "s"}),
    ]
    for field, wanted in wrong:
        with pytest.raises(InvalidInput) as refused:
            store.records(**wanted)
        assert refused.value.field == field
    with pytest.raises(InvalidInput):
        store.record("7")


@on_postgres
def test_no_list_reads_the_whole_table(by_hand: ByHand) -> None:
    by_hand(
        "INSERT INTO holdfast_records (scope, source, dedupe_key, data, job_id)"
        " SELECT 's' || n % 50, 'x' || n % 5, 'k' || n, '1', CASE WHEN n % 100 = 0 THEN gen_random_uuid() END"
        " FROM generate_series(1, 20000) n"
    )
    by_hand("ANALYZE holdfast_records")
    given = {"scope": "s1", "source": "x1", "job_id": NOBODY, "dedupe_key": "k1", "after": NOBODY}
    for asked in ("", "scope", "source", "scope source", "job_id", "scope job_id", "scope dedupe_key"):
        names = (*asked.split(), "after")
        question = f"EXPLAIN {sql.list_records(names).sql('postgresql')}"
        plan = by_hand(question, limit=51, most_bytes=10**6, **{name: given[name] for name in names})
        assert not [row for row in plan if "Seq Scan" in row[0]], (asked, plan)
        of_job = [row for row in plan if "holdfast_records_by_job" in row[0]]
        assert bool(of_job) == ("job_id" in asked), (asked, plan)


# deleting, and outliving


def test_records_are_deleted_by_scope_source_and_key(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "DELETED_AT_ONCE", 3)
    batch = [new(f"k{number}", scope=scope, source=source) for scope in "st" for source in "xy" for number in range(5)]
    store.write_records(batch)
    assert store.delete_records("nowhere") == 0
    assert store.delete_records("s", "x", "k3") == 1
    assert store.delete_records("s", dedupe_key="k4") == 2
    assert store.delete_records("s", "x") == 3
    assert store.delete_records("s") == 4
    assert len(store.records(scope="t").items) == 10
    for wrong in ({"scope": ""}, {"scope": "s", "source": "\x00"}, {"scope": "s", "dedupe_key": ""}):
        with pytest.raises(InvalidInput):
            store.delete_records(**wrong)
    assert len(store.records(scope="t").items) == 10


def test_a_pruned_job_s_records_stay(store: SqlStore, clock: Clock) -> None:
    claimed = start(store)
    [written] = store.write_records([new(data="kept")], beat(claimed))
    settle_well(store, claimed, Succeeded())
    clock.move(8 * 86_400.0)
    [group] = store.retention_due(retention.Kept.JOBS)
    assert store.prune(group, 10).ids == (claimed.job_id,)
    with pytest.raises(NotFound):
        store.job(claimed.job_id)
    record = store.record(written.id)
    assert (record.data, record.job_id) == ("kept", claimed.job_id)
    assert len(store.records(job_id=claimed.job_id).items) == 1


@on_postgres
def test_records_wait_for_a_key_that_somebody_is_writing(store: SqlStore, by_hand: ByHand) -> None:
    """Not skipped: whether ours is the stronger one is known only then. The job's own row is free meanwhile."""
    claimed = start(store)
    store.write_records([new(strength=1)])
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with ThreadPoolExecutor(1) as threads, by_hand.engine.connect() as connection:
        connection.exec_driver_sql("UPDATE holdfast_records SET strength = 5")
        written = threads.submit(store.write_records, [new(strength=3)], beat(claimed))
        wait_until(lambda: by_hand(waiting) == [(1,)], what="the writer waits for the key")
        assert store.heartbeat([beat(claimed)])[0].reason is None
        assert store.heartbeat([beat(claimed)])[0].status == "applied"
        connection.commit()
        assert written.result(timeout=DEADLINE_SECONDS)[0].kept is Kept.EXISTING
