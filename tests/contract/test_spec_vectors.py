"""Run identity is the same whichever way a job comes in: single, in bulk, through a task, a schedule or a replay."""

from collections.abc import Sequence

from holdfast import App
from holdfast.domain.schedule import Declaration
from holdfast.domain.spec import canonical_spec
from holdfast.stores.sql_store import SqlStore
from tests.contract.ground import ByHand, Clock
from tests.unit.vectors import HASHES, VECTORS


def hashes(store: SqlStore, ids: Sequence[str]) -> list[str | None]:
    return [store.job(job_id).spec_hash for job_id in ids]


def test_a_single_enqueue(store: SqlStore) -> None:
    ids = [store.enqueue(vector.new_job()).id for vector in VECTORS]
    assert hashes(store, ids) == HASHES


def test_a_bulk_enqueue(store: SqlStore) -> None:
    """On Postgres so many plain ones are copied, and those that may conflict are inserted."""
    plain = store.enqueue_many([vector.new_job() for vector in VECTORS])
    assert hashes(store, [answer.id for answer in plain]) == HASHES
    unique = store.enqueue_many([vector.new_job(unique=True) for vector in VECTORS])
    jobs = [store.job(answer.id) for answer in unique]
    assert [job.unique_key for job in jobs] == HASHES
    assert [answer.created for answer in unique].count(False) == 1, "two of the vectors are one spec"


def test_what_is_stored_still_has_its_hash(store: SqlStore) -> None:
    """A payload survives the way through the database to the byte of its canonical text, and so does its replay's."""
    for vector, answer in zip(VECTORS, store.enqueue_many([vector.new_job() for vector in VECTORS]), strict=True):
        job = store.job(answer.id)
        assert canonical_spec(job.task, job.task_version, job.payload) == vector.canonical
        assert store.job(store.replay(job.id).id).spec_hash == vector.spec_hash


def test_the_enqueue_of_a_task(store: SqlStore, database_url: str) -> None:
    for name, version in dict.fromkeys((vector.task, vector.version) for vector in VECTORS):
        app = App(database_url)  # in one app a name is one task, of one version
        task = app.command(name, ["true"], version=version)
        for vector in VECTORS:
            if (vector.task, vector.version) == (name, version):
                handles = [task.enqueue(**vector.value), *task.enqueue_many([vector.value, vector.value])]
                assert hashes(store, [handle.id for handle in handles]) == [vector.spec_hash] * 3
        app.close()


def test_the_jobs_of_schedules(store: SqlStore, clock: Clock) -> None:
    declared = [
        Declaration(
            name=f"s-{number:02}",
            task=vector.task,
            every_seconds=600.0,
            job={"payload": vector.value, "version": vector.version},
        )
        for number, vector in enumerate(VECTORS)
    ]
    assert store.announce_schedules(declared) == ()
    clock.move(601)
    fired = store.fire_schedules("ann")
    assert fired.failures == ()
    ticks = sorted(fired.ticks, key=lambda tick: tick.schedule)
    assert hashes(store, [str(tick.job_id) for tick in ticks]) == HASHES


def test_a_raw_insert_has_no_hash_and_its_replay_has(store: SqlStore, by_hand: ByHand) -> None:
    vector = VECTORS[0]
    by_hand("INSERT INTO holdfast_jobs (task, payload) VALUES (:task, :payload)", task=vector.task, payload="{}")
    [job] = store.jobs().items
    assert job.spec_hash is None
    assert store.job(store.replay(job.id).id).spec_hash == vector.spec_hash
