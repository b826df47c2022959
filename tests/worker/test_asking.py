"""What jobs ask the worker for while they run: in real runners, on both databases; and its supervisor's part alone."""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import create_engine, text

from holdfast import NewJob
from holdfast.domain.asks import Verb
from holdfast.domain.errors import InvalidInput, StoreUnavailable
from holdfast.domain.events import Event, Events, Problem, StoreBack, StoreFailed
from holdfast.domain.lifecycle import State
from holdfast.domain.manifest import TaskInfo
from holdfast.domain.timing import choose
from holdfast.ports import Store
from holdfast.runners.child.asking import Asks, JobAsks
from holdfast.runners.child.link import Link
from holdfast.runners.frames import Frame
from holdfast.runners.process import RunnerProcess
from holdfast.stores.sql_store import SqlStore
from holdfast.wiring.sql import open_store
from holdfast.worker.asking import MOST_ASKS, Asking
from holdfast.worker.leases import Held, LeaseBook
from holdfast.worker.serving import Caching, Serving
from tests.servers.waiting import wait_until
from tests.worker.site import Site

TASKS = """
from concurrent.futures import ThreadPoolExecutor
from holdfast import InvalidInput, LeaseLost, RetryAfter
app.source("shop", rate="1000/s", burst=1000, max_concurrent=2)
app.source("closed", max_concurrent=0)

@app.task
def collect(ctx: Context):
    written = ctx.record("coins", "shop", {"title": "penny", "price": 1.25}, strength=1)
    again = ctx.record("coins", "shop", {"title": "Penny", "price": 1.25})
    with ctx.source("shop") as shop:
        values = [shop.cached("k", lambda n=n: {"n": n}) for n in (1, 2)]
    try:
        ctx.record("", "shop", {"title": "x"})
    except InvalidInput as error:
        wrong = error.field
    try:
        ctx.record_many([{"scope": "s", "source": "shop", "data": {"x": "y" * 3_000_000}, "external_id": "big"}] * 2)
    except InvalidInput as error:
        too_large = type(error).__name__
    return [written.kept, again.kept, again.id == written.id, values, wrong, too_large]

@app.task
async def acollect(ctx: Context):
    async def get():
        return 7
    async with ctx.source("shop") as shop:
        value = await shop.acached("ak", get)
    many = await asyncio.gather(*(ctx.arecord("many", "shop", {"title": str(n)}) for n in range(100)))
    single = await ctx.aupsert_single("best", {"price": value})
    return [value, len({one.id for one in many}), single.kept]

@app.task
def at_once(ctx: Context):
    def write(number):
        return ctx.record("rush", "shop", {"title": str(number)}, external_id=str(number)).kept
    with ThreadPoolExecutor(8) as threads:
        kept = list(threads.map(write, range(1000)))
    return kept.count("created")

@app.task
def throttled(ctx: Context):
    with ctx.source("shop"):
        raise RetryAfter("600")

@app.task
def turned_away(ctx: Context):
    with ctx.source("closed", max_wait="0.2s"):
        pass

@app.task
def nonsense(ctx: Context):
    send = ctx._asking._asks._link.send
    for words in (
        {"t": "ask"},
        {"t": "ask", "id": [1], "number": 1, "verb": "records", "body": {}},
        {"t": "ask", "id": "nobody.1", "number": 1, "verb": "records", "body": {}},
        {"t": "ask", "id": f"{ctx.job.id}.1", "number": -1, "verb": "drop_tables", "body": {}},
        {"t": "ask", "id": f"{ctx.job.id}.1", "number": -2, "verb": "records", "body": None},
        {"t": "ask", "id": f"{ctx.job.id}.1", "number": -3, "verb": "records", "body": {"records": 7}},
        {"t": "ask", "id": f"{ctx.job.id}.1", "number": -4, "verb": "enter", "body": {"source": 3, "number": "x"}},
        {"t": "ask", "id": f"{ctx.job.id}.1", "number": -5, "verb": "cached", "body": {}},
    ):
        import json
        send(json.dumps(words).encode() + b"\\n")
    return ctx.upsert_single("sane", {}).kept

@app.task(on_lost_lease="continue")
def outlived(ctx: Context):
    if ctx.attempt > 1:
        return
    Path("begun").write_text("yes")
    while not Path("go").exists():
        time.sleep(0.02)
    try:
        ctx.record("coins", "shop", {"title": "of a zombie"})
    except LeaseLost:
        Path("lost").write_text("yes")

@app.task
def patient(ctx: Context):
    Path("patient").write_text("yes")
    with ctx.source("closed", max_wait="10m"):
        pass

@app.task
def last(ctx: Context):
    Path("last").write_text("yes")
    while not Path("asked_to_stop").exists():
        time.sleep(0.02)
    with ctx.source("shop"):
        return ctx.record("coins", "shop", {"title": "while draining"}).kept
"""


def test_jobs_of_a_worker_get_what_they_ask_for(site: Site) -> None:
    site.tasks(TASKS)
    jobs = {task: site.enqueue(task) for task in ("collect", "acollect", "at_once", "turned_away", "nonsense")}
    worker = site.worker("--processes", "1")
    for task in ("collect", "acollect", "at_once", "nonsense"):
        site.wait_for_state(jobs[task], State.SUCCEEDED, State.FAILED)
    # Only now: it pauses the source that the others need.
    jobs["throttled"] = site.enqueue("throttled")
    for task in ("throttled", "turned_away"):
        site.wait_for_event(jobs[task], "snoozed")
    assert worker.stop() == 0

    assert site.job(jobs["collect"]).result == [
        "created", "existing", True, [{"n": 1}, {"n": 1}], "scope", "TooLarge",
    ]  # fmt: skip
    assert site.job(jobs["acollect"]).result == [7, 100, "created"]
    ends = {task: site.events(jobs[task])[-1].detail or {} for task in ("collect", "acollect", "at_once")}
    looks = {task: end.get("cache") for task, end in ends.items()}
    assert looks == {"collect": {"shop": [1, 1]}, "acollect": {"shop": [0, 1]}, "at_once": None}
    assert site.job(jobs["at_once"]).result == 1000
    assert site.job(jobs["nonsense"]).result == "created"
    for task in ("throttled", "turned_away"):
        job = site.job(jobs[task])
        assert (job.state, job.failures, job.crashes) == (State.PENDING, 0, 0)
    sources = {view.name: view for view in site.store.sources()}
    assert sources["shop"].paused_until is not None
    assert (sources["shop"].max_concurrent, sources["closed"].max_concurrent) == (2, 0)
    assert len(site.store.records(scope="rush", limit=500).items) == 500


def test_who_lost_its_lease_is_told_and_a_worker_that_stops_still_answers(sqlite_site: Site) -> None:
    site = sqlite_site
    site.tasks(TASKS)
    outlived = site.enqueue("outlived", lease_seconds=6000.0)
    # No heartbeat comes before the record: a runner that knows of its lost lease sends none.
    worker = site.worker("--processes", "2", "--grace", "600s", "--heartbeat", "1000s", LEASE_SECONDS="6000")
    site.wait_for_file("begun")
    site.take_leases(outlived)
    site.tell("go")
    site.wait_for_file("lost")
    assert [record.data for record in site.store.records(scope="coins").items] == []
    assert "record" in {refusal.verb for refusal in site.wait_for_refusals(outlived)}

    last, patient = site.enqueue("last"), site.enqueue("patient")
    site.wait_for_file("last")
    site.wait_for_file("patient")
    worker.send(signal.SIGTERM)
    worker.wait_for_log("draining")
    site.tell("asked_to_stop")
    assert worker.wait() == 0
    assert site.job(last).result == "created"
    waited = site.job(patient)
    assert (waited.state, waited.failures, waited.crashes) == (State.PENDING, 0, 0)
    assert site.store.events(patient)[-1].event == "snoozed", "it need not wait for its turn until the grace is over"


# the supervisor's part alone


class Ear:
    """What a runner hears."""

    def __init__(self) -> None:
        self.heard: list[Frame] = []

    def answer(self, frame: bytes) -> None:
        self.heard.append(json.loads(frame))


class Stage:
    """A real store that can be made to go away, and one claimed job."""

    def __init__(self, store: SqlStore) -> None:
        self._store = store
        self.away = False
        self.asked = 0
        self.events: list[Event] = []
        self.book = LeaseBook(choose(60.0))
        self.asking = Asking(
            Serving(self.store, Caching(self.store)), self.book, "w", Events(self.events.append), lambda: None
        )
        self.now = 0.0

    def store(self) -> Store:
        self.asked += 1
        if self.away:
            raise StoreUnavailable("gone fishing")
        return self._store

    def job(self) -> tuple[Held, Ear]:
        self._store.enqueue(NewJob(task="x"))
        [claimed] = self._store.claim("w")
        held = self.book.add(claimed, TaskInfo("x"), 0.0)
        ear = Ear()
        held.runner = cast(RunnerProcess, ear)
        return held, ear

    def ask(self, held: Held, number: int, verb: str, body: Any) -> None:
        runner = cast(RunnerProcess, held.runner)
        self.asking.hear(runner, {"t": "ask", "id": held.id, "number": number, "verb": verb, "body": body})

    def step(self) -> None:
        self.now += 0.5
        self.asking.step(self.now)

    def run(self, until: Callable[[], bool], what: str) -> None:
        def stepped() -> bool:
            self.step()
            return until()

        wait_until(stepped, what=what)


def record(title: str) -> dict[str, Any]:
    return {"records": [{"scope": "s", "source": "a", "dedupe_key": title, "data": {"title": title}}]}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    store = open_store(f"sqlite:///{tmp_path}/jobs.db")
    stage = Stage(store)
    yield stage
    stage.asking.close()
    store.close()


def test_what_one_job_asks_is_answered_in_its_order_and_records_are_written_together(stage: Stage) -> None:
    held, ear = stage.job()
    for number in range(1, 21):
        stage.ask(held, number, "records", record(str(number)))
    stage.ask(held, 21, "enter", {"source": "shop", "number": 1})
    stage.ask(held, 22, "records", record("22"))
    stage.run(lambda: len(ear.heard) == 22, "everything is answered")
    assert [frame["number"] for frame in ear.heard] == list(range(1, 23))
    assert ear.heard[20]["value"] == {"admitted": True, "retry_in": 0.0, "reason": ""}
    assert stage.asked == 3, "20 records in one transaction"


def test_of_records_that_are_written_together_a_wrong_one_is_refused_alone(stage: Stage) -> None:
    held, ear = stage.job()
    stage.ask(held, 1, "records", record("1"))
    stage.ask(held, 2, "records", record("\x00"))
    stage.ask(held, 3, "records", record("3"))
    stage.run(lambda: len(ear.heard) == 3, "everything is answered")
    assert [frame.get("error", {}).get("kind") for frame in ear.heard] == [None, "invalid_input", None]


def test_a_store_that_is_away_is_asked_again_but_not_for_the_cache(stage: Stage) -> None:
    held, ear = stage.job()
    other, other_ear = stage.job()
    stage.away = True
    stage.ask(held, 1, "records", record("1"))
    stage.ask(held, 2, "leave", {"source": "shop", "number": 1})
    stage.ask(other, 1, "cached", {"source": "shop", "key": "k"})
    stage.run(lambda: any(isinstance(event, StoreFailed) for event in stage.events), "the outage is told")
    assert ear.heard == []
    assert [frame["error"]["kind"] for frame in other_ear.heard] == ["unavailable"]

    stage.away = False
    stage.run(lambda: len(ear.heard) == 2, "everything is answered")
    assert [frame["number"] for frame in ear.heard] == [1, 2]
    assert [type(event) for event in stage.events] == [StoreFailed, StoreBack]


def test_what_an_attempt_asked_that_is_over_is_dropped(stage: Stage) -> None:
    held, ear = stage.job()
    stage.away = True
    stage.ask(held, 1, "records", record("1"))
    stage.run(lambda: stage.asked > 0, "the store was asked")
    held.reported = True
    stage.run(lambda: len(stage.asking) == 0 and stage.asking.wake_at() == float("inf"), "nothing waits any more")
    stage.away = False
    stage.ask(held, 2, "records", record("2"))
    assert [(frame["number"], frame["error"]["kind"]) for frame in ear.heard] == [(1, "lease_lost"), (2, "lease_lost")]
    assert stage._store.records().items == ()


class Runner:
    """A runner's side of asking, with the supervisor's on the other end of the line."""

    is_open = True
    is_sending_here = False

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.asks = Asks(cast(Link, self))

    def send(self, data: bytes) -> None:
        self._stage.asking.hear(cast(RunnerProcess, self), json.loads(data))

    def answer(self, frame: bytes) -> None:
        self.asks.answered(json.loads(frame))

    def job(self) -> tuple[Held, JobAsks]:
        held, _ear = self._stage.job()
        held.runner = cast(RunnerProcess, self)
        return held, JobAsks(held.id, self.asks)


def test_jobs_that_end_with_open_asks_leave_a_runner_that_is_answered(stage: Stage) -> None:
    runner = Runner(stage)
    stage.away = True
    for _ in range(10):
        held, asks = runner.job()
        for number in range(40):
            asks.tell(Verb.RECORDS, record(str(number)))
        stage.step()
        asks.close()
        held.reported = True
    stage.away = False
    _held, asks = runner.job()
    waiting = [asks._begin(Verb.RECORDS, record(f"late {number}")) for number in range(100)]
    stage.run(lambda: all(answer.answer.done() for answer in waiting), "everything is answered")
    assert [answer.answer.result()[0]["kept"] for answer in waiting] == ["created"] * 100
    stage.run(lambda: not stage.asking._open, "nothing is counted as open")


def test_a_runner_that_floods_is_refused_and_others_are_not(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    held, ear = stage.job()
    other, other_ear = stage.job()
    stage.away = True
    for number in range(1, MOST_ASKS + 4):
        stage.ask(held, number, "records", record(str(number)))
    stage.ask(other, 1, "records", record("other"))
    refused = [(frame["number"], frame["error"]["kind"]) for frame in ear.heard]
    assert refused == [(MOST_ASKS + n, "too_large") for n in (1, 2, 3)]
    assert other_ear.heard == []

    stage.away = False
    stage.run(lambda: len(ear.heard) == MOST_ASKS + 3 and len(other_ear.heard) == 1, "the rest is answered")
    monkeypatch.setattr("holdfast.worker.asking.MOST_BYTES", 1_000)
    stage.ask(held, 1_000, "records", record("x" * 1_000))
    assert ear.heard[-1]["error"]["kind"] == "too_large"
    stage.ask(held, 1_001, "records", record("small"))
    stage.run(lambda: ear.heard[-1]["number"] == 1_001, "what fits is answered")


def test_nobody_waits_at_a_desk_for_a_source_that_somebody_has_locked(postgres_url: str) -> None:
    """On Postgres: SQLite has no locks of rows, and its writers wait for each other anyway."""
    store = open_store(postgres_url)
    stage = Stage(store)
    operator = create_engine(postgres_url)
    try:
        store.set_source("shop", max_concurrent=500)
        (held, ear), (other, other_ear) = stage.job(), stage.job()
        with operator.begin() as connection:
            connection.execute(text("UPDATE holdfast_sources SET burst = 2"))
            stage.ask(held, 1, "enter", {"source": "shop", "number": 1})
            stage.ask(other, 1, "enter", {"source": "shop", "number": 1})
            stage.run(lambda: bool(ear.heard and other_ear.heard), "both are answered while it is locked")
        assert {frame["value"]["reason"] for frame in (*ear.heard, *other_ear.heard)} == {"busy"}
    finally:
        operator.dispose()
        stage.asking.close()
        store.close()


def test_jobs_take_turns_at_the_desks(stage: Stage) -> None:
    jobs = [stage.job() for _ in range(3)]
    for held, _ear in jobs:
        for number in range(1, 4):
            stage.ask(held, number, "cached", {"source": "shop", "key": f"{number}"})
    stage.run(lambda: all(len(ear.heard) == 3 for _held, ear in jobs), "everybody has answers")
    for _held, ear in jobs:
        assert [frame["number"] for frame in ear.heard] == [1, 2, 3]


def test_nonsense_is_answered_where_there_is_somebody_to_answer(stage: Stage) -> None:
    held, ear = stage.job()
    runner = cast(RunnerProcess, held.runner)
    stage.asking.hear(runner, {"t": "ask"})
    stage.asking.hear(runner, {"t": "ask", "id": held.id, "number": "1", "verb": "records", "body": {}})
    assert [type(event) for event in stage.events] == [Problem, Problem]
    stage.ask(held, 1, "no such verb", {})
    stage.ask(held, 2, "records", {"records": [3]})
    stage.ask(held, 3, "enter", {"source": "shop"})
    stage.run(lambda: len(ear.heard) == 3, "everything is answered")
    assert {frame["error"]["kind"] for frame in ear.heard} == {"invalid_input"}


def test_error_of_our_own_is_answered_and_reported_and_the_next_ask_is_served(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, ear = stage.job()
    serve = Serving.serve

    def fail_once(*_given: Any) -> Any:
        monkeypatch.setattr(Serving, "serve", serve)
        raise ZeroDivisionError("of our own")

    monkeypatch.setattr(Serving, "serve", fail_once)
    stage.ask(held, 1, "enter", {"source": "shop", "number": 1})
    stage.ask(held, 2, "enter", {"source": "shop", "number": 2})
    stage.run(lambda: len(ear.heard) == 2, "everything is answered")
    assert ear.heard[0]["error"] == {"kind": "other", "message": "ZeroDivisionError: of our own"}
    assert ear.heard[1]["value"]["admitted"]
    [problem] = [event for event in stage.events if isinstance(event, Problem)]
    assert (problem.job_id, problem.attempt) == (held.job.job_id, held.job.attempt)
    assert "enter: ZeroDivisionError: of our own" in str(problem)


def test_what_cannot_be_read_names_its_verb(stage: Stage) -> None:
    held, _ear = stage.job()
    lease = held.beat()
    with pytest.raises(InvalidInput, match=r"^keep_cached: cannot be read"):
        Serving(stage.store, Caching(stage.store)).serve(lease, Verb.KEEP_CACHED, {})
