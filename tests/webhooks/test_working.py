"""From a task that names a webhook to a receiver that can be sure who speaks: in this process, and by a real worker."""

import base64
import hashlib
import hmac
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import App, NewJob, State
from holdfast.domain.errors import ConfigurationError, InvalidInput
from holdfast.domain.job import Job
from holdfast.domain.manifest import Kind, TaskInfo
from holdfast.domain.webhook import DELIVERY_QUEUE, DELIVERY_TASK
from holdfast.tasks.group import TaskGroup
from holdfast.webhooks import verify
from holdfast.webhooks.delivering import SECRET_VARIABLE
from holdfast.webhooks.permission import ALLOW_VARIABLE
from holdfast.webhooks.task import deliveries
from tests.chaos.conftest import postgres_template, postgres_url, sqlite_url, store_url
from tests.webhooks.conftest import SECRET
from tests.webhooks.receiver import Receiver
from tests.worker.conftest import site
from tests.worker.site import Site

__all__ = ["postgres_template", "postgres_url", "site", "sqlite_url", "store_url"]

URL = "https://x.example/hook"
BOTH = ["succeeded", "failed"]


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    yield app
    app.close()


def sent_by(app: App) -> list[Job]:
    return list(reversed(app.store.jobs(task=DELIVERY_TASK, limit=100).items))


# what a task, a group, one job and a schedule may say


def test_who_is_told_is_said_by_the_job_else_the_task_else_its_group(app: App) -> None:
    group = TaskGroup("group", webhook=URL)

    @group.task
    def plain() -> None: ...

    @group.task(webhook={"url": f"{URL}/own", "on": ["failed"]})
    def own() -> None: ...

    app.include(group)
    handles = [
        plain.enqueue(),
        own.enqueue(),
        own.using(webhook=f"{URL}/job").enqueue(),
        own.using(webhook=None).enqueue(),
    ]
    assert [handle.job().webhook for handle in handles] == [
        {"url": URL, "on": BOTH},
        {"url": f"{URL}/own", "on": ["failed"]},
        {"url": f"{URL}/job", "on": BOTH},
        None,
    ]


def test_who_enqueues_without_the_code_gets_the_tasks_webhook(app: App) -> None:
    @app.task(webhook=URL)
    def add() -> None: ...

    [info] = app.manifest()
    assert TaskInfo.from_json(info.to_json()).job_options()["webhook"] == {"url": URL, "on": BOTH}
    app.store.announce([info])
    announced = app.store.announced("add")
    assert announced is not None
    assert NewJob.from_options({"task": "add", **announced.job_options()}).webhook == {"url": URL, "on": BOTH}


def test_the_jobs_of_a_schedule_carry_it(app: App) -> None:
    @app.schedule(every="1s")
    @app.task(webhook=URL)
    def tick() -> None: ...

    [declared] = app.declarations()
    assert declared.job["webhook"] == {"url": URL, "on": BOTH}
    assert type(declared).from_json("tick", declared.to_json()) == declared


def test_a_mistake_is_named_where_it_is_made(app: App) -> None:
    with pytest.raises(InvalidInput, match="webhook: must begin with"):
        app.task(webhook="x.example")(lambda: None)
    with pytest.raises(ConfigurationError, match="the engine's own task"):
        app.task(name=DELIVERY_TASK)(lambda: None)
    with pytest.raises(ConfigurationError, match="the engine's own task"):
        app.command(DELIVERY_TASK, ["true"])
    group = app.group("holdfast")
    with pytest.raises(ConfigurationError, match="the engine's own task"):
        group.task(name="webhook")(lambda: None)


def test_the_engines_own_task_needs_no_runner_of_its_own(app: App) -> None:
    assert deliveries(app.tasks) == {}, "an app without tasks is a mistake, and stays one"

    @app.task
    async def a() -> None: ...

    assert deliveries(app.tasks)[DELIVERY_TASK].kind is Kind.ASYNC
    app.command("b", ["true"])
    assert deliveries(app.tasks)[DELIVERY_TASK].kind is Kind.SYNC
    assert list(app.tasks) == ["a", "b"], "it is no task of the app"


# from end to end


@pytest.mark.usefixtures("configured")
def test_it_is_tried_until_it_arrives(app: App, receiver: Receiver) -> None:
    @app.task(webhook=receiver.url)
    def add(a: int, b: int) -> int:
        return a + b

    receiver.answers += [(500, {}), (429, {"Retry-After": "30"}), (200, {})]
    job = add.enqueue(1, 2)
    assert app.work() == 2
    [delivery] = sent_by(app)
    assert (delivery.state, delivery.failures) == (State.RETRYABLE, 1)
    for _ in range(2):
        make_due(app, delivery.id)
        assert app.work() == 1
    delivery = app.store.job(delivery.id)
    assert (delivery.state, delivery.attempt, delivery.failures) == (State.SUCCEEDED, 3, 1), "a snooze is not charged"
    assert delivery.result == {"status": 200}
    assert {got.headers["webhook-id"] for got in receiver.arrived} == {delivery.id}
    assert len({got.body for got in receiver.arrived}) == 1
    message = verify(receiver.arrived[-1].headers, receiver.arrived[-1].body, SECRET)
    assert (message["type"], message["data"]["id"], message["data"]["result"]) == ("job.succeeded", job.id, 3)


def make_due(app: App, job_id: str) -> None:
    with app.store.database.engine.begin() as connection:  # type: ignore[attr-defined]
        connection.exec_driver_sql(f"UPDATE holdfast_jobs SET run_after = created_at WHERE id = '{job_id}'")


@pytest.mark.usefixtures("configured")
def test_a_receiver_that_is_gone_ends_it(app: App, receiver: Receiver) -> None:
    @app.task(webhook=receiver.url)
    async def fail() -> None:
        raise ValueError("no")

    receiver.answers.append((410, {}))
    fail.using(max_attempts=1).enqueue()
    assert app.work() == 2
    [delivery] = sent_by(app)
    assert delivery.state is State.FAILED
    assert delivery.last_error is not None
    assert "answered 410" in delivery.last_error["message"]
    assert receiver.arrived[0].message["data"]["error"] == {"code": "ValueError", "message": "no"}
    app.store.requeue([delivery.id])
    assert app.work() == 1
    assert app.store.job(delivery.id).state is State.SUCCEEDED


def test_without_a_secret_nothing_is_sent(app: App, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task(webhook=receiver.url)
    def add() -> None: ...

    monkeypatch.delenv(SECRET_VARIABLE, raising=False)
    add.enqueue()
    app.work()
    [delivery] = sent_by(app)
    assert delivery.state is State.FAILED
    assert SECRET_VARIABLE in str(delivery.last_error)
    assert receiver.arrived == []


def test_a_real_worker_delivers_beside_its_own_work(site: Site, receiver: Receiver) -> None:
    site.tasks(f"""
        @app.task(webhook="{receiver.url}")
        def add(a: int, b: int) -> int:
            return a + b
    """)
    environment = {SECRET_VARIABLE: f"{SECRET} another-secret-that-comes-next", ALLOW_VARIABLE: "127.0.0.1"}
    worker = site.worker(POLL_INTERVAL="0.1", **environment)
    webhook = {"url": receiver.url, "on": ["succeeded"]}
    job = site.enqueue("add", {"a": 1, "b": 2}, webhook=webhook)
    site.wait_for_counts(succeeded=2)
    [got] = receiver.arrived
    message = got.message
    assert (message["type"], message["data"]["id"], message["data"]["result"]) == ("job.succeeded", job, 3)
    # As somebody would who has never heard of us.
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    signed = f"{got.headers['webhook-id']}.{got.headers['webhook-timestamp']}.".encode() + got.body
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert f"v1,{expected}" in got.headers["webhook-signature"].split(" ")
    [delivery] = site.store.jobs(queue=DELIVERY_QUEUE).items
    assert got.headers["webhook-id"] == delivery.id
    assert site.store.announced(DELIVERY_TASK) is not None
    assert SECRET.removeprefix("whsec_") not in worker.text()
    assert worker.stop() == 0
    assert "1 task," in worker.text(), "the engine's own is not counted"
