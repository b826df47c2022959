"""`/metrics` of a control plane: valid in both formats whatever names there are, about the fleet as it is, answered
while the store is away, too, and read by nobody who may not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from holdfast.domain.job import NewJob
from holdfast.domain.views import WorkerRow
from holdfast.serve import fleet_metrics, gauges, metrics
from holdfast.serve.options import ServeSettings
from holdfast.serve.running import ControlPlane
from tests.serve import exposed, http
from tests.serve.grounds import Served, bearer, serving
from tests.serve.raw import call
from tests.servers.waiting import DEADLINE_SECONDS, wait_until

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
FORMATS: dict[str, Callable[[str], Iterable[Metric]]] = {"text/plain": parse_text, OPENMETRICS: parse_openmetrics}
HOSTILE = 'q"uote back\\slash\\n </script><img src=x onerror=alert(1)> {a="b"} é'
BY_HAND = f"{HOSTILE} line\nbreak\r\n\t\u2028# EOF\n"  # no verb takes such a name, but a hand may have typed it

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(autouse=True)
def _looks_come_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """And may take long: on a slow machine that is no store that is away."""
    monkeypatch.setattr(gauges, "SHORTEST_SECONDS", 0.05)
    monkeypatch.setattr(gauges, "SHARE", 1)
    monkeypatch.setattr(gauges, "HANGING_SECONDS", DEADLINE_SECONDS)
    monkeypatch.setattr(metrics, "FIRST_LOOK_SECONDS", DEADLINE_SECONDS)


def samples(text: str, accept: str = "text/plain") -> Samples:
    found: Samples = {}
    for family in FORMATS[accept](text):
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found, f"{key} is there twice"
            found[key] = sample.value
    return found


def scrape(url: str, accept: str = "text/plain", token: str | None = None) -> Samples:
    answer = http.get(f"{url}/metrics", headers={"Accept": accept} | ({} if token is None else bearer(token)))
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith(accept.split(";")[0])
    return samples(answer.text, accept)


def read(found: Samples, name: str, **labels: str) -> float | None:
    return found.get((f"holdfast_{name}", frozenset(labels.items())))


def status(url: str, token: str | None = None) -> int:
    return http.get(f"{url}/metrics", headers={} if token is None else bearer(token)).status_code


@pytest.mark.parametrize("accept", FORMATS)
def test_the_fleet_is_told_whatever_its_things_are_called(served: Served, queue: str, accept: str) -> None:
    name = f"{HOSTILE}{queue}"
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    served.enqueue(name, 3, run_after=hour_ago, source=name)
    served.enqueue(name, 2, delay="1h")
    served.store.set_source(name, max_concurrent=1)
    [claimed] = served.store.claim("ann", 1, [name])
    served.store.keep_worker(WorkerRow(id=name, host="h", pid=1, state="polling", slots=3, running=1))
    served.store.pause_queue(name)

    def now() -> Samples:
        return scrape(served.url, accept)

    # The pause was the last change, and queues are read first: whatever a look with it has was read after all of them.
    wait_until(lambda: read(now(), "queue_paused", queue=name) == 1, what="the fleet is read again")
    found = now()
    assert read(found, "queue_jobs", queue=name, state="ready") == 2
    assert read(found, "queue_jobs", queue=name, state="scheduled") == 2
    oldest = read(found, "queue_oldest_seconds", queue=name)
    assert oldest is not None
    assert 3600 <= oldest < 7200
    assert read(found, "queue_jobs", queue=name, state="running") == 1
    assert read(found, "source_breaker", source=name, state="closed") == 1
    assert read(found, "source_breaker", source=name, state="open") == 0
    assert (read(found, "workers", state="polling") or 0) >= 1
    assert (read(found, "worker_slots") or 0) >= 3
    assert read(found, "jobs_at_least", state="running") == 0
    assert (read(found, "jobs", state="running") or 0) >= 1
    assert read(found, "store_up") == 1
    assert (read(found, "pool_size", part="control_plane", budget="reads") or 0) == 4
    assert claimed.due_seconds is not None
    assert claimed.due_seconds >= 3600


def test_requests_are_counted_by_the_template_of_their_route(served: Served, queue: str) -> None:
    [job_id] = served.enqueue(queue)
    before = scrape(served.url)
    labels = {"route": "/api/v1/jobs/{job_id}", "method": "GET"}
    with served.client("viewer") as client:
        for number in range(3):
            assert client.get(f"/api/v1/jobs/{job_id}").status_code == 200
            assert client.get(f"/nowhere/{number}?{HOSTILE}").status_code == 404
            assert client.request("PROPFIND", f"/nowhere/{number}").status_code == 404
        assert client.get("/api/v1/jobs/nonsense").status_code == 422
    found = scrape(served.url)

    def more(name: str, **labels: str) -> float:
        return (read(found, name, **labels) or 0.0) - (read(before, name, **labels) or 0.0)

    assert more("http_requests_total", **labels, status="200") == 3
    assert more("http_requests_total", **labels, status="422") == 1
    assert more("http_requests_total", route="(none)", method="GET", status="404") == 3
    assert more("http_requests_total", route="(none)", method="other", status="404") == 3
    assert more("http_request_seconds_count", route=labels["route"]) == 4
    assert not any("nowhere" in value for _name, pairs in found for _label, value in pairs)


def test_those_who_wait_for_a_job_are_counted(served: Served, queue: str) -> None:
    async def story() -> None:
        before = await asyncio.to_thread(scrape, served.url)
        waiting = await call(served.url, served.tokens["worker"], "claim", streams=[queue], max_wait_ms=60_000)
        wanted = (read(before, "long_polls_waiting") or 0) + 1
        while read(await asyncio.to_thread(scrape, served.url), "long_polls_waiting") != wanted:
            await asyncio.sleep(0.02)
        served.enqueue(queue)
        status, answer = await waiting.answer()
        assert (status, answer["claimed"]) == (200, True)
        assert answer["due_seconds"] >= 0
        waiting.hang_up()

    asyncio.run(story())


def test_dead_rows_and_the_oldest_snapshot_are_told_on_postgres_alone(served: Served, queue: str) -> None:
    served.enqueue(queue)
    if not served.database_url.startswith("postgresql"):
        found = scrape(served.url)
        assert read(found, "oldest_snapshot_seconds") is None
        assert not any(name.startswith("holdfast_table") for name, _labels in found)
        return
    for figure in ("live_rows", "dead_rows", "dead_ratio"):
        assert read(scrape(served.url), f"table_{figure}", table="holdfast_jobs") is not None
    with served.store.database.engine.connect() as connection, connection.connection.driver_connection.transaction():  # type: ignore[union-attr]
        connection.exec_driver_sql("SELECT count(*) FROM holdfast_jobs")
        connection.exec_driver_sql("SELECT pg_current_xact_id()")
        wait_until(
            lambda: (read(scrape(served.url), "oldest_snapshot_seconds") or 0) > 0, what="the transaction is seen"
        )
    wait_until(lambda: read(scrape(served.url), "oldest_snapshot_seconds") == 0, what="it is over")


# who may read it


def test_on_the_loopback_no_token_is_needed_and_one_that_is_sent_is_checked(served: Served) -> None:
    assert status(served.url) == 200
    assert status(served.url, served.tokens["viewer"]) == 200
    assert status(served.url, f"hf_{'0' * 16}_{'0' * 64}") == 401
    assert status(served.url, served.new_token("viewer", queues=("a",))) == 403


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'holdfast.db'}"


@pytest.mark.parametrize("settings", [{"metrics": "token"}, {"metrics": "auto", "host": "0.0.0.0"}])
def test_where_others_can_reach_it_any_scope_opens_it_and_nothing_else(database: str, settings: dict[str, Any]) -> None:
    with serving(database, **settings) as served:
        url = served.url.replace("0.0.0.0", "127.0.0.1")
        assert status(url) == 401
        assert [status(url, token) for token in served.tokens.values()] == [200] * 4
        assert status(url, served.new_token("worker", queues=("a",))) == 403


def test_it_may_be_open_to_all_or_not_there(database: str) -> None:
    with serving(database, metrics="open", host="0.0.0.0") as served:
        assert status(served.url.replace("0.0.0.0", "127.0.0.1")) == 200
    with serving(database, metrics="off") as served:
        refused = http.get(f"{served.url}/metrics", headers=bearer(served.tokens["admin"]))
        assert (refused.status_code, refused.json()) == (404, http.get(f"{served.url}/nowhere").json())


# while the store is away


@pytest.fixture
def without_store(tmp_path: Path) -> Iterator[ControlPlane]:
    """Its file is in a folder that is not there yet."""
    control = ControlPlane(ServeSettings(database_url=f"sqlite:///{tmp_path / 'away' / 'x.db'}", port=0, duties=False))
    control.start()
    yield control
    control.stop()


def test_a_store_that_is_away_is_told_by_a_page_that_is_there(without_store: ControlPlane, tmp_path: Path) -> None:
    url = without_store.url
    found = scrape(url)
    assert read(found, "store_up") == 0
    assert read(found, "budget_threads", budget="reads") == 4
    assert read(found, "store_failures_total", what="reads") == 1
    assert not any(name.startswith(("holdfast_queue", "holdfast_jobs", "holdfast_fleet")) for name, _labels in found)
    (tmp_path / "away").mkdir()
    wait_until(lambda: read(scrape(url), "store_up") == 1, what="it is back")
    assert read(scrape(url), "jobs", state="failed") == 0


# bounds


class _Page(CollectorRegistry):
    def __init__(self, *metrics: Metric) -> None:
        super().__init__()
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return iter(self._metrics)


@pytest.mark.parametrize("accept", FORMATS)
def test_names_beyond_the_bound_are_added_up(monkeypatch: pytest.MonkeyPatch, accept: str) -> None:
    monkeypatch.setattr(fleet_metrics, "MOST_NAMES", 2)
    queues = [exposed.queue(f"q{number}", ready=number, waited=100.0 * number) for number in range(5)]
    sources = tuple(exposed.source(name, waiting) for name, waiting in (("other", 7), ("b", 3), ("c", 2), ("d", 1)))
    fleet = exposed.fleet(*queues, exposed.queue("other", ready=0, waited=None), sources=sources)
    encode, _type = choose_encoder(accept)
    found = samples(encode(_Page(*fleet_metrics.families(fleet))).decode(), accept)
    ready = {queue: read(found, "queue_jobs", queue=queue, state="ready") for queue in ("q4", "q3", "q2", "other")}
    assert ready == {"q4": 4, "q3": 3, "q2": None, "other": 0 + 1 + 2}
    assert read(found, "queue_oldest_seconds", queue="other") == 200
    waiting = {source: read(found, "source_waiting", source=source) for source in ("other", "b", "c")}
    assert waiting == {"other": 7 + 2 + 1, "b": 3, "c": None}


@pytest.mark.parametrize("accept", FORMATS)
def test_a_name_that_was_typed_by_hand_breaks_no_line(accept: str) -> None:
    fleet = exposed.fleet(exposed.queue(BY_HAND, paused=True), sources=(exposed.source(BY_HAND),))
    encode, _type = choose_encoder(accept)
    found = samples(encode(_Page(*fleet_metrics.families(fleet))).decode(), accept)
    assert read(found, "queue_jobs", queue=BY_HAND, state="ready") == 1
    assert read(found, "queue_paused", queue=BY_HAND) == 1
    assert read(found, "source_breaker", source=BY_HAND, state="closed") == 1


def test_workers_are_counted_by_what_they_are_and_only_those_alive_have_slots() -> None:
    workers = (
        exposed.worker("alive"),
        exposed.worker("silent", silent=91.0),
        exposed.worker("stopped", stopped=True),
        exposed.worker("foreign", state=HOSTILE),
    )
    encode, _type = choose_encoder("")
    found = samples(encode(_Page(*fleet_metrics.families(exposed.fleet(workers=workers)))).decode())
    counts = {state: read(found, "workers", state=state) for state in ("polling", "silent", "stopped", "other", "idle")}
    assert counts == {"polling": 1, "silent": 1, "stopped": 1, "other": 1, "idle": 0}
    assert (read(found, "worker_slots"), read(found, "worker_slots_in_use")) == (8, 2)


def test_a_count_that_was_cut_says_so(served: Served, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.serve.gauges.MOST_COUNTED", 2)
    served.store.enqueue_many([NewJob(task="send", queue=queue) for _ in range(3)])
    wait_until(
        lambda: read(scrape(served.url), "jobs_at_least", state="pending") == 1, what="the fleet is looked at again"
    )
