"""Histories, queues, sources, schedules and the fleet over HTTP."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from holdfast.domain.answers import Beat
from holdfast.domain.artifacts import Artifact
from holdfast.domain.job import NewJob
from holdfast.domain.logs import LogLine, Stream
from holdfast.domain.manifest import TaskInfo
from holdfast.domain.outcome import Failed, JobError, Report, Succeeded
from holdfast.domain.schedule import Declaration
from holdfast.domain.views import WorkerRow
from holdfast.wiring.http import open_control_plane
from tests.serve.grounds import Served
from tests.serve.steps import done

API = "/api/v1"
NAMES = ["a/b", "50% off?#", "naïve 日本/pause", "trailing/limit/", "%2F"]


def line(job_id: str, number: int, message: str = "said") -> LogLine:
    return LogLine(job_id, 1, number, datetime.now(UTC), Stream.STDOUT, message, None, {"n": number})


def get(client: httpx.Client, path: str, **params: Any) -> Any:
    answer = client.get(f"{API}{path}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_history_tells_everything_but_the_lease(served: Served, client: httpx.Client, queue: str) -> None:
    [job_id] = served.enqueue(queue)
    claimed = served.store.claim_job("ann", job_id)
    assert claimed is not None
    digest = [event.lease for event in served.store.events(job_id)][-1]
    assert digest
    running = [client.get(f"{API}/jobs/{job_id}{path}").text for path in ("", "/events", "/attempts")]
    saved = Artifact(job_id, 1, "page.html", "text/html", 5, "0" * 64)
    report = Report(job_id, 1, claimed.lease_token, Succeeded(7), "ann", artifacts=(saved,))
    assert served.store.settle([report])[0].ok
    events = get(client, f"/jobs/{job_id}/events")
    assert [event["event"] for event in events["events"]] == ["enqueued", "claimed", "succeeded"]
    assert get(client, f"/jobs/{job_id}/events", limit=1, after=1)["events"] == events["events"][1:2]
    assert get(client, f"/jobs/{job_id}/events", limit=1, after=1)["after"] == 2
    [attempt] = get(client, f"/jobs/{job_id}/attempts")["attempts"]
    assert (attempt["outcome"], attempt["worker"]) == ("succeeded", "ann")
    [artifact] = get(client, f"/jobs/{job_id}/artifacts")["artifacts"]
    assert (artifact["name"], artifact["bytes"], artifact["reference"]) == ("page.html", 5, f"{job_id}/1/page.html")
    everything = json.dumps([*running, events, attempt, get(client, "/jobs", queue=queue)])
    assert claimed.lease_token not in everything
    assert digest not in everything


def test_lines_come_page_by_page(served: Served, client: httpx.Client, queue: str) -> None:
    [job_id] = served.enqueue(queue)
    served.store.append_logs([line(job_id, number) for number in range(1, 8)])
    first = get(client, f"/jobs/{job_id}/logs", limit=5)
    assert ([item["number"] for item in first["lines"]], first["after"]) == ([1, 2, 3, 4, 5], "1.5")
    rest = get(client, f"/jobs/{job_id}/logs", limit=5, after=first["after"])
    assert ([item["fields"]["n"] for item in rest["lines"]], rest["after"]) == ([6, 7], None)
    assert get(client, f"/jobs/{job_id}/logs", attempt=2)["lines"] == []
    assert client.get(f"{API}/jobs/{job_id}/logs", params={"after": "one"}).status_code == 422


def test_a_page_of_long_lines_is_short(served: Served, client: httpx.Client, queue: str) -> None:
    [job_id] = served.enqueue(queue)
    served.store.append_logs([line(job_id, number, "x" * 65_000) for number in range(1, 51)])
    page = client.get(f"{API}/jobs/{job_id}/logs")
    assert len(page.content) < 2_200_000
    after = page.json()["after"]
    assert get(client, f"/jobs/{job_id}/logs", after=after)["lines"][0]["number"] == len(page.json()["lines"]) + 1


@pytest.mark.parametrize("name", NAMES)
def test_any_name_works_in_a_path(served: Served, client: httpx.Client, name: str) -> None:
    path = quote(name, safe="")
    paused = client.post(f"{API}/queues/{path}/pause")
    assert (paused.status_code, paused.json()["name"]) == (200, name), paused.text
    assert served.store.queue_settings(name).paused_at is not None
    assert client.post(f"{API}/queues/{path}/resume").json()["paused_at"] is None
    limited = client.put(f"{API}/queues/{path}/limit", json={"max_running": 3})
    assert limited.json() == {"name": name, "paused_at": None, "max_running": 3}
    assert name in [queue["name"] for queue in get(client, "/queues")["queues"]]
    source = client.put(f"{API}/sources/{path}", json={"max_concurrent": 2}).json()
    assert (source["name"], source["max_concurrent"], source["enabled"]) == (name, 2, True)
    assert client.put(f"{API}/sources/{path}", json={"max_concurrent": None}).json()["max_concurrent"] is None
    assert name in [found["name"] for found in get(client, "/sources")["sources"]]


def test_wrong_limits_change_nothing(served: Served, client: httpx.Client, queue: str) -> None:
    limits: list[Any] = [{"max_running": -1}, {"max_running": 1.5}, {}, {"max_runing": 1}, {"max_running": True}]
    for body in limits:
        assert client.put(f"{API}/queues/{queue}/limit", json=body).status_code == 422
    sources: list[Any] = [
        {"burst": 0},
        {"burst": None},
        {"rate_limit_per_minute": 0},
        {"paused_until": "soon"},
        {"x": 1},
    ]
    for body in sources:
        assert client.put(f"{API}/sources/{queue}", json=body).status_code == 422
    assert queue not in [found.name for found in served.store.queues()]
    assert queue not in [found.name for found in served.store.sources()]


def test_schedules_are_seen_paused_and_run(served: Served, client: httpx.Client, queue: str) -> None:
    name = f"nightly/{queue}"
    served.store.add_schedule(Declaration(name=name, task="send", cron="0 3 * * *", job={"queue": queue}))
    assert name in [found["name"] for found in get(client, "/schedules")["schedules"]]
    path = quote(name, safe="")
    assert client.post(f"{API}/schedules/{path}/pause").json()["paused_at"] is not None
    assert client.post(f"{API}/schedules/{path}/resume").json()["paused_at"] is None
    run = client.post(f"{API}/schedules/{path}/run")
    assert (run.status_code, served.store.job(run.json()["id"]).queue) == (201, queue)
    assert client.post(f"{API}/schedules/nobody/run").status_code == 404
    with served.client(token=served.new_token("client", queues=("elsewhere",))) as limited:
        assert get(limited, "/schedules") == {"schedules": [], "unreadable": []}
        assert limited.post(f"{API}/schedules/{path}/run").status_code == 404


def test_the_fleet_is_seen(served: Served, client: httpx.Client, queue: str) -> None:
    served.store.announce([TaskInfo(f"task-{queue}", "2", defaults={"queue": queue})])
    served.store.keep_worker(WorkerRow(id=f"w-{queue}", host="h", pid=1, state="running", queues=(queue, "secret")))
    assert {"name": f"task-{queue}", "version": "2", "kind": "sync", "on_lost_lease": "kill"}.items() <= next(
        found for found in get(client, "/tasks")["tasks"] if found["name"] == f"task-{queue}"
    ).items()
    assert f"w-{queue}" in [found["id"] for found in get(client, "/workers")["workers"]]
    with served.client(token=served.new_token("viewer", queues=(queue,))) as limited:
        assert [found["queues"] for found in get(limited, "/workers")["workers"]] == [[queue]]
    assert {found["state"] for found in get(client, "/stats")["states"]} >= {"pending", "succeeded"}


def test_tasks_are_seen_by_those_who_could_make_their_jobs(served: Served, client: httpx.Client, queue: str) -> None:
    url = "https://example.com/told?key=secret"
    hidden, shown, plain = (f"{kind}-{queue}" for kind in ("hidden", "shown", "plain"))
    served.store.announce(
        [
            TaskInfo(hidden, defaults={"queue": f"{queue}-other"}),
            TaskInfo(shown, defaults={"queue": queue, "webhook": {"url": url}}),
            TaskInfo(plain),
        ]
    )

    def seen(client: httpx.Client) -> dict[str, Any]:
        found = {task["name"]: task["defaults"] for task in get(client, "/tasks")["tasks"]}
        return {name: found[name] for name in found if name in (hidden, shown, plain)}

    assert seen(client) == {
        hidden: {"queue": f"{queue}-other"},
        shown: {"queue": queue, "webhook": {"url": url}},
        plain: {},
    }
    for scope in ("client", "viewer"):
        with served.client(token=served.new_token(scope, queues=(queue,))) as limited:
            assert seen(limited) == {shown: {"queue": queue}}
    with served.client("viewer") as viewer:
        assert seen(viewer)[shown] == {"queue": queue}
        assert plain in seen(viewer)
    with served.client(token=served.new_token("client", queues=("default",))) as limited:
        assert seen(limited) == {plain: {}}


def test_the_detail_of_what_happened_to_a_source_is_not_for_a_token_of_some_queues(served: Served, queue: str) -> None:
    """It names the job that moved the breaker, which may be of any queue."""
    served.store.set_source(queue, breaker_threshold=1)
    job_id = done(served.store, NewJob(task="send", queue=f"{queue}-other", source=queue), Failed(JobError("E", "no")))
    path = f"/sources/{queue}/events"
    with served.client("viewer") as viewer:
        told = get(viewer, path)["events"]
        assert [event["event"] for event in told] == ["breaker_opened", "limits_changed"]
        assert told[0]["detail"]["job_id"] == job_id
    with served.client(token=served.new_token("client", queues=(queue,))) as limited:
        assert get(limited, path)["events"] == [{**event, "detail": None} for event in told]


def test_what_is_stuck_is_seen_by_those_who_see_the_queue(served: Served, queue: str) -> None:
    [job_id] = served.enqueue(queue, run_after=datetime.now(UTC) - timedelta(hours=1))
    with served.client(token=served.new_token("viewer", queues=(queue,))) as limited:
        [stuck] = get(limited, "/stuck", limit=5)["stuck"]
        assert (stuck["job"]["id"], stuck["count"]) == (job_id, 1)
        assert stuck["reason"]
    with served.client(token=served.new_token("viewer", queues=("elsewhere",))) as limited:
        assert get(limited, "/stuck")["stuck"] == []


def test_what_is_stuck_is_whose_replay_it_is_only_to_those_who_see_that(served: Served, queue: str) -> None:
    [original] = served.enqueue(f"{queue}-other")
    served.enqueue(queue, run_after=datetime.now(UTC) - timedelta(hours=1), replay_of=original)
    with served.client(token=served.new_token("viewer", queues=(queue,))) as limited:
        assert [stuck["job"]["replay_of"] for stuck in get(limited, "/stuck")["stuck"]] == [None]
    with served.client(token=served.new_token("viewer", queues=(queue, f"{queue}-other"))) as wider:
        assert [
            stuck["job"]["replay_of"] for stuck in get(wider, "/stuck")["stuck"] if stuck["job"]["queue"] == queue
        ] == [original]


def test_refusals_are_seen_by_those_who_see_the_job(served: Served, client: httpx.Client, queue: str) -> None:
    [job_id] = served.enqueue(queue)
    assert served.store.claim_job("ann", job_id) is not None
    served.store.heartbeat([Beat(job_id, 1, "forged", "mallory")])
    [refusal] = get(client, "/refusals", job=job_id)["refusals"]
    assert (refusal["reason"], refusal["worker"], refusal["count"]) == ("unknown_lease", "mallory", 1)
    assert job_id in [found["job_id"] for found in get(client, "/refusals")["refusals"]]
    with served.client(token=served.new_token("viewer", queues=("elsewhere",))) as limited:
        assert get(limited, "/refusals") == {"refusals": []}
        assert limited.get(f"{API}/refusals", params={"job": job_id}).status_code == 404


def test_a_source_is_seen_changed_paused_and_resumed(served: Served, client: httpx.Client, queue: str) -> None:
    path = f"/sources/{queue}"
    assert client.get(f"{API}{path}").status_code == 404
    assert client.post(f"{API}{path}/resume").status_code == 404
    limits = {"rate": "5/s", "burst": 3, "breaker_ignores": ["NotFound"], "breaker_counts_permanent": False}
    changed = client.put(f"{API}{path}", json=limits)
    assert changed.status_code == 200, changed.text
    source = get(client, path)
    assert (source["rate_limit_per_minute"], source["burst"], source["breaker_ignores"]) == (300, 3, ["NotFound"])
    assert (source["breaker"], source["in_use"], source["waiting"]) == ("closed", 0, 0)
    paused = client.post(f"{API}{path}/pause", json={"seconds": 600}).json()
    assert paused["paused_by"] == "operator"
    assert served.store.source(queue).paused_until is not None
    assert client.post(f"{API}{path}/resume").json()["paused_until"] is None
    page = get(client, f"{path}/events", limit=2)
    assert [event["event"] for event in page["events"]] == ["resumed", "paused"]
    rest = get(client, f"{path}/events", limit=2, after=page["after"])
    assert ([event["event"] for event in rest["events"]], rest["after"]) == (["limits_changed"], None)


@pytest.mark.parametrize(
    "body", [{"rate": "fast"}, {"rate": "1/s", "rate_limit_per_minute": 60}, {"breaker_only": "A"}, {"paused_for": 0}]
)
def test_a_source_takes_nothing_that_is_wrong(served: Served, client: httpx.Client, queue: str, body: Any) -> None:
    answer = client.put(f"{API}/sources/{queue}", json=body)
    assert answer.status_code == 422, answer.text
    assert client.post(f"{API}/sources/{queue}/pause", json={"seconds": -1}).status_code == 422
    assert queue not in [found.name for found in served.store.sources()]


@pytest.mark.parametrize("word", ["events", "pause", "resume", "cache"])
def test_a_slash_that_is_encoded_belongs_to_the_name(
    served: Served, client: httpx.Client, queue: str, word: str
) -> None:
    name = f"{queue}/{word}"
    served.store.set_source(queue, burst=2)
    served.store.set_source(name, burst=7)
    served.store.keep_cached(queue, "k", 1, 60.0)
    path = quote(name, safe="")
    assert get(client, f"/sources/{path}")["burst"] == 7
    assert [event["source"] for event in get(client, f"/sources/{path}/events")["events"]] == [name]
    assert [event["source"] for event in get(client, f"/sources/{queue}/events")["events"]] == [queue]
    assert client.post(f"{API}/sources/{path}/pause", json={"seconds": 60}).json()["name"] == name
    assert client.post(f"{API}/sources/{path}/resume").json()["name"] == name
    assert client.delete(f"{API}/sources/{path}/cache").json() == {"cleared": 0}
    for ask in (client.post, client.delete):
        assert ask(f"{API}/sources/{path}").status_code == 405, "not a word about another source"
    assert served.store.source(queue).paused_until is None
    assert served.store.cached(queue, "k") is not None


def test_what_a_source_answered_is_forgotten(served: Served, client: httpx.Client, queue: str) -> None:
    for key in ("a b/&c", "k1", "k2"):
        served.store.keep_cached(queue, key, 1, 60.0)
    path = f"{API}/sources/{queue}/cache"
    with served.client(token=served.new_token("client", queues=(queue,))) as limited:
        assert limited.delete(path).status_code == 403
    with served.client("viewer") as viewer:
        assert viewer.delete(path).status_code == 403
    assert client.delete(path, params={"key": ""}).status_code == 422
    assert client.delete(path, params={"key": "a b/&c"}).json() == {"cleared": 1}
    remote = open_control_plane(served.url, served.tokens["client"])
    assert (remote.clear_cache(queue, "k1"), remote.clear_cache(queue, "k1"), remote.clear_cache(queue)) == (1, 0, 1)
    served.store.set_source(f"{queue}/events", burst=3)
    assert remote.source(f"{queue}/events").burst == 3
    remote.close()
