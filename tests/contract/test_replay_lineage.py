"""A replay is a new job of the same spec that says whose replay it is, and can be told from its original."""

import re
from pathlib import Path
from typing import Any

import pytest

from holdfast import App, ArtifactRef, Context
from holdfast.domain.comparison import Comparison
from holdfast.domain.errors import Conflict, InvalidInput, NotFound
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Cancelled, Failed, JobError, Outcome, Succeeded
from holdfast.domain.retry import RetryPolicy
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.statements.replays import REPLAYS
from holdfast.stores.verbs import replaying
from holdfast.tasks.comparing import compare_jobs, original_of, root_of
from holdfast.tasks.task import AnyTask
from tests.contract.ground import ByHand
from tests.contract.steps import HOPELESS, claim_this, enqueue, job_in, postgres_later, settle_well, start

NEW = "01890a5d-ac96-774b-bcce-b302099a8057"
COPIED = (
    "task", "task_version", "queue", "priority", "payload", "spec_hash", "source", "max_attempts", "max_crashes",
    "retry", "timeout_seconds", "lease_seconds", "webhook", "unique_key",
)  # fmt: skip


def ended(store: SqlStore, outcome: Outcome, **options: Any) -> str:
    claimed = start(store, **options)
    settle_well(store, claimed, outcome)
    return claimed.job_id


def replayed(store: SqlStore, job_id: str, outcome: Outcome) -> str:
    new = store.replay(job_id).id
    settle_well(store, claim_this(store, new), outcome)
    return new


def test_a_replay_has_the_spec_and_the_options_of_its_original(store: SqlStore) -> None:
    options: dict[str, Any] = {
        "payload": {"seed": 7, "rate": 1.0}, "version": "3", "queue": "slow", "priority": 5, "max_attempts": 9,
        "max_crashes": 2, "retry": RetryPolicy("fixed", base=2.0), "timeout_seconds": 30.0, "lease_seconds": 90.0,
        "source": "shop", "unique_key": "k", "webhook": "https://x.example/done",
    }  # fmt: skip
    original = ended(store, Succeeded(1), **options)
    answer = store.replay(original)
    assert (answer.created, answer.state) == (True, State.PENDING)
    one, other = store.job(original), store.job(answer.id)
    assert {name: getattr(one, name) for name in COPIED} == {name: getattr(other, name) for name in COPIED}
    assert (other.replay_of, other.result, other.attempt, other.failures) == (original, None, 0, 0)


@pytest.mark.parametrize("state", list(State))
def test_a_job_in_any_state_can_be_replayed(store: SqlStore, state: State) -> None:
    job_id = job_in(store, state)
    before = store.job(job_id)
    assert store.replay(job_id).created
    assert store.job(job_id) == before


def test_the_replays_of_a_job_are_those_of_itself_the_oldest_first(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, other = enqueue(store), enqueue(store)
    replays = [store.replay(original).id for _ in range(3)]
    second = store.replay(replays[1]).id
    assert [job.id for job in store.replays(original)] == replays
    assert [job.id for job in store.replays(original.upper())] == replays
    assert [(job.id, job.replay_of) for job in store.replays(replays[1])] == [(second, replays[1])]
    assert store.replays(other) == store.replays(NEW) == []
    monkeypatch.setattr(replaying, "MOST_REPLAYS", 2)
    assert [job.id for job in store.replays(original)] == replays[1:], "the latest of very many"
    with pytest.raises(InvalidInput, match="UUID"):
        store.replays("x")


def test_they_are_found_by_their_index(store: SqlStore, by_hand: ByHand) -> None:
    dialect = store.database.dialect
    explain = "EXPLAIN" if dialect == "postgresql" else "EXPLAIN QUERY PLAN"
    if dialect == "postgresql":
        by_hand(
            "INSERT INTO holdfast_jobs (task, replay_of)"
            " SELECT 'add', CASE WHEN n % 100 = 0 THEN gen_random_uuid() END FROM generate_series(1, 5000) n"
        )
        by_hand("ANALYZE holdfast_jobs")
    plan = by_hand(f"{explain} {REPLAYS.sql(dialect)}", id=NEW, limit=10)
    assert "holdfast_jobs_replays" in str(plan)


def test_a_replay_that_is_asked_for_again_by_its_id_is_the_same_one(store: SqlStore) -> None:
    original = ended(store, Succeeded(1))
    assert store.replay(original, NEW).created
    again = store.replay(original, NEW.upper())
    assert (again.id, again.created) == (NEW, False)
    with pytest.raises(Conflict, match="is taken by another job"):
        store.replay(enqueue(store, "other"), NEW)
    assert [job.id for job in store.replays(original)] == [NEW]


def test_a_unique_key_that_is_taken_is_named_and_nothing_is_made(store: SqlStore, by_hand: ByHand) -> None:
    original = ended(store, Succeeded(1), unique_key="k")
    holder = enqueue(store, unique_key="k")
    before = by_hand.everything()
    with pytest.raises(Conflict, match=f"job {holder} has the unique key of {original} and is pending"):
        store.replay(original)
    assert by_hand.everything() == before


def test_what_is_gone_cannot_be_replayed_and_its_replays_know_it(store: SqlStore, by_hand: ByHand) -> None:
    original = ended(store, Succeeded(1))
    first = replayed(store, original, Succeeded(1))
    second = store.replay(first).id
    by_hand(f"DELETE FROM holdfast_jobs WHERE id = '{original}'")
    with pytest.raises(NotFound, match=f"job {original} has been pruned, and its payload with it"):
        store.replay(original)
    with pytest.raises(NotFound, match=f"there is no job {NEW}"):
        store.replay(NEW)
    assert [job.id for job in store.replays(original)] == [first]
    assert root_of(store, store.job(second)) == original
    with pytest.raises(NotFound, match=f"is a replay of {original}, which is no longer there"):
        original_of(store, store.job(first))
    assert store.replay(first).created, "it has its own payload"


def test_a_delivery_of_a_webhook_is_not_replayed(store: SqlStore) -> None:
    ended(store, Succeeded(1), webhook="https://x.example/done")
    [delivery] = [job for job in store.jobs().items if job.task != "add"]
    with pytest.raises(InvalidInput, match="delivers a webhook"):
        store.replay(delivery.id)


def test_the_first_of_a_chain(store: SqlStore) -> None:
    chain = [enqueue(store)]
    for _ in range(3):
        chain.append(store.replay(chain[-1]).id)
    assert [root_of(store, store.job(job_id)) for job_id in chain] == [None, chain[0], chain[0], chain[0]]


# Comparing


def failed(code: str) -> Failed:
    return Failed(JobError(code, f"it said {code}", retryable=False))


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (Succeeded({"a": 1.0, "b": None}), Succeeded({"b": None, "a": 1}), Comparison(True)),
        (Succeeded({"a": 1}), Succeeded({"a": 2}), Comparison(False, ("$.a: 1 -> 2",))),
        (Succeeded(), Succeeded(), Comparison(True)),
        (Succeeded(), Succeeded(0), Comparison(False, ("$: null -> 0 (a number)",))),
        (Succeeded(1), HOPELESS, Comparison(False, ("state: succeeded -> failed (bad)",))),
        (HOPELESS, Succeeded(1), Comparison(False, ("state: failed (bad) -> succeeded",))),
        (HOPELESS, failed("bad"), Comparison(True)),
        (HOPELESS, failed("worse"), Comparison(False, ("error code: bad -> worse",))),
        (Succeeded(1), Cancelled("no"), Comparison(False, ("state: succeeded -> cancelled",))),
        (Cancelled("no"), Cancelled("no"), Comparison(None, ("both were cancelled; neither has a result",))),
    ],
    ids=str,
)
@postgres_later
def test_outcomes_side_by_side(store: SqlStore, first: Outcome, second: Outcome, expected: Comparison) -> None:
    original = ended(store, first)
    job = store.job(replayed(store, original, second))
    assert compare_jobs(store, original_of(store, job), job) == expected


def test_of_a_job_that_has_not_ended_nothing_can_be_told(store: SqlStore) -> None:
    running, waiting = start(store).job_id, enqueue(store)
    found = compare_jobs(store, store.job(running), store.job(waiting))
    assert found.equal is None
    assert [line.split(" is ")[1].split()[0] for line in found.differences] == ["running", "pending"]


@pytest.mark.usefixtures("store")
def test_handles_replay_and_compare_wherever_results_are_kept(database_url: str, tmp_path: Path) -> None:
    app = App(database_url, artifacts=tmp_path / "files")
    runs = iter(range(100))

    @app.task
    def big(changes: bool) -> dict[str, Any]:
        return {"text": "x" * 300_000, "run": next(runs) if changes else 0}

    @app.task
    def note(changes: bool, ctx: Context) -> ArtifactRef:
        return ctx.save("note.txt", f"run {next(runs) if changes else 0}")

    @app.task
    def model(changes: bool, ctx: Context) -> ArtifactRef:
        return ctx.save("model.bin", bytes([next(runs) if changes else 0]))

    differences: dict[AnyTask, str] = {
        big: r"\$.run: \d+ -> \d+",
        note: r'\$: "run \d+" -> "run \d+"',
        model: r"1 bytes, SHA-256 [0-9a-f]{16}… -> 1 bytes, SHA-256 [0-9a-f]{16}…",
    }
    for task, line in differences.items():
        for changes in (False, True):
            first = task.enqueue(changes)
            app.work()
            again = first.replay()
            assert again.compare().equal is None
            app.work()
            found = again.compare()
            assert found.equal is not changes
            assert len(found.differences) == int(changes)
            assert all(re.fullmatch(line, told) for told in found.differences), found
            assert first.compare(again).equal is found.equal
    with pytest.raises(NotFound, match="is not a replay"):
        first.compare()
    app.close()


@pytest.mark.usefixtures("store")
def test_a_file_that_cannot_be_read_leaves_open_whether_json_is_the_same(database_url: str, tmp_path: Path) -> None:
    app = App(database_url, artifacts=tmp_path / "files")
    runs = iter(range(2))

    @app.task
    def big() -> dict[str, Any]:
        return {"text": "x" * 300_000, "run": next(runs)}

    first = big.enqueue()
    again = first.replay()
    app.work()
    app.replace_artifacts(tmp_path / "elsewhere")
    found = again.compare()
    assert found.equal is None
    assert "SHA-256" in found.differences[0]
    assert found.differences[1].startswith("not read: ")
    app.close()
