"""`App("https://…", token=…)`: the same tasks and handles, without a database."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest

from holdfast import App, ConfigurationError, Context, JobCancelled, NotFound
from holdfast.domain.errors import InvalidInput, StoreUnavailable
from holdfast.domain.lifecycle import State
from tests.serve.grounds import Served
from tests.servers.waiting import DEADLINE_SECONDS

# What differs between databases is seen elsewhere: these are about the other side.
pytestmark = [
    pytest.mark.usefixtures("served"),
    pytest.mark.parametrize("served_database", ["sqlite"], indirect=True, scope="module"),
]

LIGHT = """
import sys
from holdfast import App
app = App(sys.argv[1], token=sys.argv[2])

@app.task
def add(a: int, b: int) -> int:
    return a + b

print(add.enqueue(1, 2).id)
print(*{name.partition(".")[0] for name in sys.modules} & {"sqlalchemy", "psycopg", "fastapi", "uvicorn", "alembic"})
"""


@pytest.fixture
def app(served: Served) -> Iterator[App]:
    app = App(served.url, token=served.new_token("client", "worker"))

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    @app.task
    def say(word: str, ctx: Context) -> str:
        ctx.log(word)
        ctx.progress(1, 1)
        return word * 2

    yield app
    app.close()


def test_a_replay_that_is_asked_for_again_by_its_id_is_the_same_one(app: App) -> None:
    original, new_id = app.tasks["add"].enqueue(1, 2), str(uuid.uuid4())
    answers = [app.store.replay(original.id, new_id) for _ in range(2)]
    assert [(answer.id, answer.created) for answer in answers] == [(new_id, True), (new_id, False)]


def test_jobs_are_enqueued_worked_on_and_read(served: Served, app: App) -> None:
    queue = f"queue-{uuid.uuid4().hex[:12]}"
    add, say = app.tasks["add"].using(queue=queue), app.tasks["say"].using(queue=queue)
    sums = add.enqueue_many([(1, 2), (3, 4)])
    word = say.enqueue("hold")

    assert app.work(queues=[queue]) == 3

    assert [handle.result(DEADLINE_SECONDS) for handle in sums] == [3, 7]
    assert (word.result(DEADLINE_SECONDS), word.progress()) == ("holdhold", {"done": 1, "total": 1})
    assert [line.message for line in word.logs()] == ["hold"]
    assert served.store.job(word.id).state is State.SUCCEEDED
    later = add.using(delay="1h").enqueue(5, 6)
    assert (later.created, later.cancel()) == (True, True)
    with pytest.raises(JobCancelled):
        later.result(DEADLINE_SECONDS)
    with pytest.raises(NotFound):
        app.handle(str(uuid.uuid4()))


@pytest.mark.parametrize("name", [".", "..", "...", "a/../b", "%2E%2E", "ü?x#y"])
def test_a_name_that_looks_like_a_path_is_a_name(served: Served, name: str) -> None:
    operator = App(served.url, token=served.new_token("admin"))
    operator.set_source(name, rate="60/m")
    operator.store.pause_queue(name)
    assert operator.store.source(name).name == name
    assert name in {source.name for source in served.store.sources()}
    assert [queue.paused_at is not None for queue in served.store.queues() if queue.name == name] == [True]
    operator.close()


def test_what_needs_the_database_is_refused_in_words(app: App) -> None:
    add = app.tasks["add"]
    with pytest.raises(ConfigurationError, match="connection= needs the database itself"):
        add.using(connection=object()).enqueue(1, 2)
    with pytest.raises(ConfigurationError, match="this needs the database itself"):
        app.store.retention_rules()
    with pytest.raises(InvalidInput, match="priority"):
        add.using(priority=1_000).enqueue(1, 2)


def test_a_token_is_wanted_checked_and_never_shown(served: Served) -> None:
    secret = served.new_token("viewer")
    app = App(served.url, token=secret)

    @app.task
    def nothing() -> None: ...

    with pytest.raises(ConfigurationError, match="does not allow this to the token") as refused:
        nothing.enqueue()
    assert secret not in f"{refused.value!r} {app!r} {app.store!r} {vars(app.store)}"
    app.close()
    for wrong, rule in ((None, "a control plane wants a token"), ("hf_wrong", "does not accept the token")):
        other = App(served.url, token=wrong)
        with pytest.raises(ConfigurationError, match=rule):
            other.store.queues()
        other.close()


def test_a_control_plane_that_is_not_there_is_a_store_that_is_away() -> None:
    app = App("http://127.0.0.1:1", token="hf_any")
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        app.store.queues()
    app.close()


def test_it_loads_no_library_of_databases_or_servers(served: Served) -> None:
    token = served.new_token("client")
    program = [sys.executable, "-c", LIGHT, served.url, token]
    job_id, heavy = subprocess.run(program, capture_output=True, text=True, check=True).stdout.split("\n")[:2]

    assert served.store.job(job_id).payload == {"a": 1, "b": 2}
    assert heavy == ""


def test_a_worker_in_this_process_works_although_it_may_declare_no_limits(
    served: Served, app: App, caplog: pytest.LogCaptureFixture
) -> None:
    app.tasks["add"].enqueue(1, 2)
    limited = App(served.url, token=served.new_token("worker", queues=("mine",)))
    limited.source("forbidden", burst=2)
    assert limited.work() == 0
    limited.close()
    [told] = [record for record in caplog.records if "forbidden" in record.getMessage()]
    assert (told.levelname, told.name) == ("WARNING", "holdfast")
    assert "forbidden" not in {source.name for source in served.store.sources()}
