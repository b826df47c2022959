"""Every verb once over HTTP, beside the same call on a copy of the same database.

What a verb does is proved on the database itself (tests/contract), and once more over HTTP by `make test-long`. Here
each of two copies of one database gets the call, one over HTTP and one directly. The answers, or the errors, must be
equal, and so must every row afterwards.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.domain.answers import Beat
from holdfast.domain.artifacts import Artifact
from holdfast.domain.errors import HoldfastError
from holdfast.domain.feed import FeedPlace
from holdfast.domain.job import AuditEvent, Claimed, NewJob
from holdfast.domain.lifecycle import State
from holdfast.domain.logs import LogLine, Stream
from holdfast.domain.manifest import Kind, OnLostLease, TaskInfo
from holdfast.domain.outcome import Failed, JobError, Report, Succeeded, Usage
from holdfast.domain.record import NewRecord
from holdfast.domain.schedule import Declaration
from holdfast.domain.sources import End, Entry, Leaving, SourceDeclaration
from holdfast.domain.tokens import Issued
from holdfast.domain.views import WorkerRow
from holdfast.remote.store import RemoteStore
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.sqlite import open_sqlite
from tests.contract.ground import ByHand, HostClock
from tests.contract.kept import judge
from tests.contract.steps import EVERY_OUTCOME, EXACT, job_in, new, report
from tests.remote.contract.conftest import OVER_HTTP, Pointed

UNKNOWN = "0190f6a0-0000-7000-8000-000000000000"
REQUEST = "5" * 32
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
LIMITS = {"rate_limit_per_minute": 60.0, "burst": 3, "max_concurrent": 5, "breaker_threshold": 2}
WORKER = WorkerRow(
    id="w2",
    host="host",
    pid=8,
    state="running",
    app="tasks:app",
    queues=("a", "b"),
    processes=2,
    slots=8,
    running=3,
    version="1.0",
    detail={"warmed": ["add"]},
)
TASKS = [TaskInfo("add", "2", Kind.ASYNC, OnLostLease.CONTINUE, {"queue": "other", "priority": 3})]
SCHEDULES = [
    Declaration(name="nightly", task="add", job={"queue": "other"}, cron="0 3 * * *", timezone="Europe/Berlin")
]
_RANDOM = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\b[0-9a-f]{32}\b")


@dataclass(frozen=True)
class Scene:
    """One database in which there is some of everything."""

    path: Path
    clock: HostClock
    credential: str
    jobs: dict[str, str]  # ids, by name
    leases: dict[str, Claimed]
    known: set[str]  # ids and digests

    def beat(self, name: str, **more: Any) -> Beat:
        job = self.leases[name]
        return Beat(job.job_id, job.attempt, job.lease_token, "ann", credential=self.credential, **more)

    def report(self, name: str, outcome: Any, **more: Any) -> Report:
        return report(self.leases[name], outcome, credential=self.credential, **more)

    def line(self, name: str, number: int, message: str, **more: Any) -> LogLine:
        job, at = self.leases[name], self.clock.now()
        return LogLine(job.job_id, job.attempt, number, at, Stream.STDOUT, message, **more)


Call = Callable[[SqlStore, Scene], Any]

# By verb: what differs from call to call is what the request can hold, and what can be wrong with it.
CALLS: dict[str, list[Call]] = {
    "announce": [lambda store, _: store.announce(TASKS), lambda store, _: store.announce([])],
    "announce_schedules": [lambda store, _: store.announce_schedules(SCHEDULES)],
    "announce_sources": [lambda store, _: store.announce_sources([SourceDeclaration("bank", {"burst": 2})])],
    "announced": [lambda store, _: store.announced("add"), lambda store, _: store.announced("unknown")],
    "announced_tasks": [lambda store, _: store.announced_tasks()],
    "append_logs": [
        lambda store, scene: store.append_logs(
            [
                scene.line("noted", 3, "third", level="INFO", fields={"a": [1, None], "ü": "\u2028"}),
                scene.line("noted", 4, "fourth"),
            ]
        ),
    ],
    "artifacts": [
        lambda store, scene: store.artifacts(scene.jobs["succeeded"]),
        lambda store, _: store.artifacts(UNKNOWN),
    ],
    "attempts": [
        lambda store, scene: store.attempts(scene.jobs["retryable"]),
        lambda store, _: store.attempts(UNKNOWN),
        lambda store, _: store.attempts("nonsense"),
    ],
    "cached": [
        lambda store, scene: store.cached("shop", "known", scene.beat("noted")),
        lambda store, scene: store.cached("shop", "unknown", scene.beat("noted")),
        lambda store, scene: store.cached("shop", "", scene.beat("noted")),
    ],
    "cancel": [
        lambda store, scene: store.cancel([*scene.jobs.values(), UNKNOWN]),
        lambda store, _: store.cancel(["nonsense"]),
    ],
    "claim": [
        lambda store, scene: _claim(store, scene, "bob", 50),
        lambda store, scene: _claim(store, scene, "bob", 50, ["other"], ["add"]),
        lambda store, scene: _claim(store, scene, "bob", 50, [], None),
        lambda store, scene: _claim(store, scene, "", 1),
        lambda store, scene: _claim(store, scene, "bob", 0),
    ],
    "clear_cache": [
        lambda store, _: store.clear_cache("shop"),
        lambda store, _: store.clear_cache("shop", "known"),
        lambda store, _: store.clear_cache("shop", "unknown"),
    ],
    "count_logs": [lambda store, scene: store.count_logs(scene.jobs["noted"])],
    "delete_records": [
        lambda store, _: store.delete_records("coins"),
        lambda store, _: store.delete_records("coins", "mint", "penny"),
        lambda store, _: store.delete_records(""),
    ],
    "enqueue": [
        lambda store, scene: store.enqueue(_full_job(scene)),
        lambda store, _: store.enqueue(NewJob(task="add", id=UNKNOWN)),
        lambda store, scene: store.enqueue(NewJob(task="add", id=scene.jobs["pending"])),
        lambda store, scene: store.enqueue(NewJob(task="other", id=scene.jobs["pending"])),
        lambda store, _: store.enqueue(NewJob(task="add", unique_key="the key")),
        lambda store, _: store.enqueue(NewJob(task="add", id=UNKNOWN, delay=60, payload={"ü": [1.5, 2**60, None]})),
    ],
    "enqueue_many": [
        lambda store, _: store.enqueue_many([]),
        lambda store, scene: store.enqueue_many([_full_job(scene), NewJob(task="add", unique_key="the key")]),
    ],
    "enter_source": [
        lambda store, scene: store.enter_source(scene.beat("noted"), Entry("shop", 1)),
        lambda store, scene: store.enter_source(scene.beat("noted"), Entry("closed", 1)),
        lambda store, scene: store.enter_source(scene.beat("noted"), Entry("a\nb", 1)),
    ],
    "events": [
        lambda store, scene: [_shown(event) for event in store.events(scene.jobs["retryable"])],
        lambda store, _: store.events(UNKNOWN),
    ],
    "feed": [lambda store, scene: _feed(store, scene)],
    "heartbeat": [
        lambda store, scene: store.heartbeat(
            [
                scene.beat("noted", progress={"done": 0.5}),
                scene.beat("asked"),
                Beat(scene.jobs["running"], 1, "0" * 64, "ann", credential=scene.credential),
                Beat(UNKNOWN, 1, "0" * 64, "ann", credential=scene.credential),
            ]
        ),
        lambda store, _: store.heartbeat([]),
    ],
    "job": [
        *[lambda store, scene, name=name: store.job(scene.jobs[name]) for name in (*State, "full", "noted", "asked")],
        lambda store, _: store.job(UNKNOWN),
        lambda store, _: store.job("nonsense"),
    ],
    "jobs": [
        lambda store, _: store.jobs(),
        lambda store, _: store.jobs(states=[State.FAILED, State.PENDING], queue="default", task="add", limit=2),
        lambda store, scene: store.jobs(after=scene.jobs["failed"]),
    ],
    "keep_cached": [
        lambda store, scene: store.keep_cached("shop", "new", {"a": [1, None]}, 60.0, scene.beat("noted")),
        lambda store, scene: store.keep_cached("shop", "new", 1, -1.0, scene.beat("noted")),
    ],
    "keep_schedules": [lambda store, _: store.keep_schedules(SCHEDULES)],
    "keep_worker": [
        lambda store, _: store.keep_worker(
            WORKER
        )
    ],
    "last_logs": [lambda store, scene: store.last_logs(scene.jobs["noted"], 1)],
    "leave_source": [
        lambda store, scene: store.leave_source(
            scene.beat("inside"), Leaving("shop", 1, End.FAILED, "http_503", True, 2.0)
        ),
    ],
    "limit_queue": [
        lambda store, _: store.limit_queue("other", 3),
        lambda store, _: store.limit_queue("held", None),
        lambda store, _: store.limit_queue("other", 0),
    ],
    "logs": [
        lambda store, scene: store.logs(scene.jobs["noted"]),
        lambda store, scene: store.logs(scene.jobs["noted"], 1, (1, 1), 1),
        lambda store, scene: store.logs(scene.jobs["noted"], limit=0),
        lambda store, _: store.logs(UNKNOWN),
    ],
    "pause_queue": [lambda store, _: store.pause_queue("other"), lambda store, _: store.pause_queue("..")],
    "queues": [lambda store, _: store.queues()],
    "record": [
        lambda store, scene: store.record(scene.jobs["record"]),
        lambda store, _: store.record(UNKNOWN),
    ],
    "records": [
        lambda store, _: store.records(),
        lambda store, _: store.records(scope="coins", source="mint", dedupe_key="penny", limit=1),
        lambda store, scene: store.records(job_id=scene.jobs["noted"]),
        lambda store, scene: store.records(after=scene.jobs["record"]),
    ],
    "refusals": [
        lambda store, _: store.refusals(),
        lambda store, scene: store.refusals(scene.jobs["running"]),
    ],
    "replay": [
        lambda store, scene: store.replay(scene.jobs["failed"], UNKNOWN),
        lambda store, _: store.replay(UNKNOWN, UNKNOWN),
    ],
    "replays": [lambda store, scene: store.replays(scene.jobs["failed"])],
    "requeue": [lambda store, scene: store.requeue([*scene.jobs.values(), UNKNOWN])],
    "resume_queue": [lambda store, _: store.resume_queue("held"), lambda store, _: store.resume_queue("other")],
    "resume_source": [lambda store, _: store.resume_source("closed"), lambda store, _: store.resume_source("unknown")],
    "running": [lambda store, _: sorted(store.running(), key=lambda listed: listed.job.id)],
    "set_source": [
        lambda store, _: store.set_source("shop", **LIMITS, breaker_only=("http_503",)),
        lambda store, _: store.set_source("a/b", burst=1, rate_limit_per_minute=1.0, paused_for=30.0),
        lambda store, _: store.set_source("shop", burst=0),
    ],
    "settle": [
        lambda store, scene: store.settle(
            [
                *[scene.report(f"ends {event}", outcome) for event, outcome in EVERY_OUTCOME.items()],
                _refused_report(scene),
            ]
        ),
        lambda store, scene: store.settle([_full_report(scene)]),
        lambda store, scene: store.settle(
            [scene.report("ends failed", Failed(JobError("x" * 300, "y", "z", retryable=False), 3, told=True))]
        ),
        lambda store, _: store.settle([]),
    ],
    "source": [
        lambda store, _: store.source("shop"),
        lambda store, _: store.source("closed"),
        lambda store, _: store.source("unknown"),
    ],
    "source_events": [
        lambda store, _: store.source_events("closed"),
        lambda store, _: store.source_events("closed", limit=1),
    ],
    "sources": [lambda store, _: store.sources()],
    "state_counts": [lambda store, _: store.state_counts()],
    "stuck": [lambda store, _: store.stuck(), lambda store, _: store.stuck(1)],
    "workers": [lambda store, _: [replace(worker, detail={}) for worker in store.workers()]],
    "write_records": [
        lambda store, scene: [
            written.kept
            for written in store.write_records(
                [
                    NewRecord(scope="coins", source="mint", dedupe_key="penny", data={"worth": 2}, replace=True),
                    NewRecord(scope="coins", dedupe_key="ext_d", data=[10], external_id="d", strength=0.5),
                ],
                scene.beat("noted"),
            )
        ],
        lambda store, scene: store.write_records([], scene.beat("noted")),
    ],
}  # fmt: skip


def _full_job(scene: Scene) -> NewJob:
    return NewJob(
        task="add",
        payload={"left": 1},
        version="2",
        queue="other",
        priority=-3,
        run_after=scene.clock.now() + timedelta(hours=1),
        max_attempts=5,
        max_crashes=2,
        retry=EXACT,
        timeout_seconds=9.5,
        lease_seconds=45.0,
        source="shop",
        unique_key="mine",
        reuse_seconds=30.0,
        id=UNKNOWN,
        traceparent=TRACEPARENT,
        webhook="https://example.com/done",
    )


def _full_report(scene: Scene) -> Report:
    job = scene.leases["ends succeeded"]
    return scene.report(
        "ends succeeded",
        Succeeded(None, "artifact:sum"),
        usage=Usage(12, 7, 4096),
        progress={"done": 1},
        artifacts=(Artifact(job.job_id, job.attempt, "sum", "text/plain", 3, "0" * 64),),
        cache={"shop": (2, 1)},
    )


def _refused_report(scene: Scene) -> Report:
    return Report(scene.jobs["running"], 1, "0" * 64, Succeeded(), "ann", credential=scene.credential)


def _claim(store: SqlStore, scene: Scene, *wanted: Any) -> tuple[list[Claimed], float | None]:
    """In the order of their ids, as all are equally old; without their tokens, which are random."""
    found = store.claim(*wanted, credential=scene.credential, request_id=REQUEST)
    return sorted((replace(job, lease_token="") for job in found), key=lambda job: job.job_id), found.again_in


def _feed(store: SqlStore, scene: Scene) -> list[Any]:
    return list(store.feed(FeedPlace(scene.clock.now() - timedelta(seconds=60)), 1000).items)


def _shown(event: AuditEvent) -> AuditEvent:
    """Digests of tokens and of reports are the engine's own, and leave the store with nobody."""
    detail = {name: value for name, value in (event.detail or {}).items() if name != "report"}
    return replace(event, lease=None, detail=detail)


@pytest.fixture(scope="module")
def scene(
    tmp_path_factory: pytest.TempPathFactory,
    guarded_file: tuple[Path, Issued],
    remote: RemoteStore,
    pointed: Pointed,
) -> Scene:
    path = tmp_path_factory.mktemp("scene") / "holdfast.db"
    shutil.copy(guarded_file[0], path)
    clock = HostClock()
    clock.hold()
    sql = SqlStore(open_sqlite(f"sqlite:///{path}", clock=clock.now))
    pointed.current = sql
    scene = Scene(path, clock, guarded_file[1].token.id, {}, {}, {UNKNOWN})
    _set_up(sql, cast(SqlStore, remote), scene)
    sql.close()
    scene.known.update(_RANDOM.findall(str(ByHand(f"sqlite:///{path}").everything())))
    return scene


def _set_up(sql: SqlStore, over_http: SqlStore, scene: Scene) -> None:
    sql.set_source("shop", **LIMITS)
    sql.set_source("closed", rate_limit_per_minute=60.0, paused_for=600.0)
    sql.announce([TaskInfo("add", defaults={"priority": 1}), TaskInfo("other")])
    sql.keep_worker(WorkerRow(id="w1", host="host", pid=7, state="running"))
    sql.keep_cached("shop", "known", {"worth": [1, None]}, 600.0)
    sql.pause_queue("held")
    sql.limit_queue("held", 2)
    for state in State:
        scene.jobs[state] = job_in(sql, state, retry=EXACT)
    scene.jobs["full"] = sql.enqueue(replace(_full_job(scene), id=None)).id
    scene.jobs["keyed"] = sql.enqueue(new(unique_key="the key")).id
    scene.jobs["waits for its source"] = sql.enqueue(new(source="closed")).id
    scene.jobs["replayed"] = sql.replay(scene.jobs["failed"]).id
    scene.jobs["other"] = sql.enqueue(new(queue="other")).id
    for name in ("noted", "asked", "inside", *(f"ends {event}" for event in EVERY_OUTCOME)):
        scene.jobs[name] = sql.enqueue(new(queue=name.replace(" ", "-"), retry=EXACT)).id
        [scene.leases[name]] = over_http.claim("ann", 1, [name.replace(" ", "-")])
    over_http.append_logs([scene.line("noted", 1, "first"), scene.line("noted", 2, "second")])
    over_http.cancel([scene.jobs["asked"]])
    over_http.enter_source(scene.beat("inside"), Entry("shop", 1))
    [written] = sql.write_records(
        [NewRecord(scope="coins", source="mint", dedupe_key="penny", data={"worth": 1})], scene.beat("noted")
    )
    scene.jobs["record"] = written.id
    sql.settle([_refused_report(scene)])


@pytest.mark.parametrize("verb", CALLS)
def test_verb_over_http_is_the_verb_on_the_database(
    verb: str, scene: Scene, remote: RemoteStore, pointed: Pointed, tmp_path: Path
) -> None:
    for number, call in enumerate(CALLS[verb]):
        found = {}
        for way in ("direct", "over HTTP"):
            path = tmp_path / f"{number} {way}.db"
            shutil.copy(scene.path, path)
            sql = SqlStore(open_sqlite(f"sqlite:///{path}", clock=scene.clock.now))
            pointed.current = sql
            store = sql if way == "direct" else cast(SqlStore, remote)
            found[way] = {"answer": _answer(call, store, scene), **_rows(path, scene)}
            assert judge(sql.database).ok
            sql.close()
        direct, over_http = found.values()
        different = {name: (direct[name], over_http[name]) for name in direct if direct[name] != over_http[name]}
        assert different == {}, f"call {number}"


def _answer(call: Call, store: SqlStore, scene: Scene) -> Any:
    try:
        return call(store, scene)
    except HoldfastError as error:
        return type(error), str(error)


def _rows(path: Path, scene: Scene) -> dict[str, list[str]]:
    """All rows. What the call made is random (ids and tokens), or is said of requests only (credentials)."""
    by_hand = ByHand(f"sqlite:///{path}")
    try:
        tables = by_hand.everything()
    finally:
        by_hand.engine.dispose()
    del tables["holdfast_tokens"]  # when they were last used
    del tables["holdfast_claim_requests"]
    of_http = f',"holdfast.credential":"{scene.credential}"'
    return {
        table: sorted(
            _RANDOM.sub(lambda word: word[0] if word[0] in scene.known else "new", row.replace(of_http, ""))
            for row in rows
        )
        for table, rows in tables.items()
    }


def test_every_verb_has_a_call() -> None:
    assert set(CALLS) >= OVER_HTTP
