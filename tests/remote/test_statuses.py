"""A proxy that answers requests itself, with a status that says nothing about them, costs no job its outcome."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from holdfast import App
from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.lifecycle import ACTIVE, State
from holdfast.torture.proxy import FaultProxy
from holdfast.torture.proxy_answers import Answers, ProxyResponse
from tests.chaos.databases import query
from tests.remote.fleet import Fleet
from tests.serve.grounds import Served, serving
from tests.servers.waiting import DEADLINE_SECONDS
from tests.worker.site import patched

JOBS, HELD = 20, 6  # jobs for each group of pages, and jobs that run at once
LONG_AND_ONCE: dict[str, Any] = {"max_attempts": 1, "lease_seconds": 600.0}
EVERYTHING = (b" /internal/worker/",)
REPORTS = (b" /internal/worker/reports",)
JSON = "application/json"
PAGES = {
    "500": [ProxyResponse(500)],
    "404": [ProxyResponse(404, b"default backend - 404", "text/plain")],
    "403 and 405": [ProxyResponse(403), ProxyResponse(405, b"")],
    "502, 503, 504 and 429": [
        ProxyResponse(502),
        ProxyResponse(503, b""),
        ProxyResponse(504),
        ProxyResponse(429, b'{"message":"slow down"}', JSON),
    ],
    "other errors": [
        ProxyResponse(400),
        ProxyResponse(413),
        ProxyResponse(418),
        ProxyResponse(422, b'{"detail":"no"}', JSON),
        ProxyResponse(501),
        ProxyResponse(599),
    ],
    "no errors": [
        ProxyResponse(200),
        ProxyResponse(200, b"{}", JSON),
        ProxyResponse(204, b""),
        ProxyResponse(302, b""),
    ],
    "bodies and cookies that cannot be read": [
        ProxyResponse(200, b"plain", JSON, "Content-Encoding: gzip\r\n"),
        ProxyResponse(503, b"plain", JSON, "Content-Encoding: gzip\r\n"),
        ProxyResponse(200, b'{"answers":7,"jobs":7}', JSON),
        ProxyResponse(200, b'{"answers":["ok"],"jobs":["ok"]}', JSON),
        ProxyResponse(503, b"", headers="Set-Cookie: route=caf\u00e9; Path=/\r\n"),
    ],
}
ALL_PAGES = [page for group in PAGES.values() for page in group]

TASKS = """
    @app.task
    def answer(number: int) -> int:
        print("number", number)
        return number

    @app.task(max_attempts=1)
    def hold(number: int, ctx: Context) -> int:
        Path(f"held-{number}").write_text("yes")
        while not Path("go").exists():
            time.sleep(0.02)
        return number
"""


@dataclass(frozen=True)
class AllButTheLast(Answers):
    """All but the last of every `every`, so that no luck decides."""

    every: int = 3
    number: Iterator[int] = field(default_factory=itertools.count)

    def page(self, request: bytes, chosen: random.Random) -> ProxyResponse | None:
        page = Answers(self.pages, 1.0, self.carried_out, self.paths).page(request, chosen)
        return None if page is None or next(self.number) % self.every == self.every - 1 else page


@pytest.fixture
def plane(sqlite_fleet: Fleet) -> Iterator[Served]:
    with serving(sqlite_fleet.url, duties=True) as served:
        yield served


@pytest.fixture
def proxy(plane: Served) -> Iterator[FaultProxy]:
    parsed = urlsplit(plane.url)
    with FaultProxy((parsed.hostname or "", parsed.port or 0), seed=1) as proxy:
        yield proxy


def url_of(proxy: FaultProxy) -> str:
    return f"http://127.0.0.1:{proxy.port}"


def all_are_over(fleet: Fleet) -> bool:
    return not any(fleet.counts().get(state) for state in ACTIVE)


def test_half_of_all_reports_answered_by_the_proxy_leave_every_job_succeeded(
    sqlite_fleet: Fleet, proxy: FaultProxy
) -> None:
    """By one group of pages after the other; the last time after the server has carried the request out."""
    sqlite_fleet.tasks(TASKS)
    sqlite_fleet.remote_worker(url_of(proxy), "--slots", "4")
    ids: list[str] = []
    for group, pages in {**PAGES, "carried out": ALL_PAGES}.items():
        carried_out = float(group == "carried out")
        proxy.answer(AllButTheLast(pages, carried_out=carried_out, paths=REPORTS, every=2))
        numbers = range(len(ids), len(ids) + JOBS)
        ids += [sqlite_fleet.enqueue("answer", {"number": number}, **LONG_AND_ONCE) for number in numbers]
        sqlite_fleet.wait(lambda: all_are_over(sqlite_fleet), f"every job is over: {group}")
        assert proxy.pass_on() > 0, group
        assert sqlite_fleet.counts() == {"succeeded": len(ids)}, group

    assert sqlite_fleet.charged() == (0, 0)
    assert [sqlite_fleet.job(job_id).result for job_id in ids] == list(range(len(ids)))


def test_a_third_of_everything_answered_by_the_proxy_holds_up_no_job_for_good(
    sqlite_fleet: Fleet, proxy: FaultProxy
) -> None:
    """Claims, heartbeats, logs and announcements as well, from the start of the worker on."""
    sqlite_fleet.tasks(TASKS)
    ids = [
        sqlite_fleet.enqueue("answer", {"number": number}, max_attempts=1, lease_seconds=600.0)
        for number in range(JOBS)
    ]
    proxy.answer(Answers(ALL_PAGES, chance=0.3, carried_out=0.5, paths=EVERYTHING))

    worker = sqlite_fleet.remote_worker(url_of(proxy), "--slots", "4")
    sqlite_fleet.wait(lambda: all_are_over(sqlite_fleet), "every job is over")
    proxy.pass_on()

    assert sqlite_fleet.counts() == {"succeeded": JOBS}
    assert sqlite_fleet.charged() == (0, 0)
    assert worker.stop() == 0
    lines = [line.message for job_id in ids for line in sqlite_fleet.store.logs(job_id)]
    assert lines == [f"number {number}" for number in range(JOBS)]
    assert {task.name for task in sqlite_fleet.store.announced_tasks()} >= {"answer", "hold"}


def test_a_stop_while_the_proxy_answers_gives_running_jobs_back(sqlite_fleet: Fleet, proxy: FaultProxy) -> None:
    sqlite_fleet.tasks(TASKS)
    ids = [sqlite_fleet.enqueue("hold", {"number": number}) for number in range(HELD)]
    patient = patched("from holdfast.worker import draining; draining.UNDELIVERED_SECONDS = 600.0")
    worker = sqlite_fleet.remote_worker(url_of(proxy), "--slots", str(HELD), "--grace", "0s", program=patient)
    for number in range(HELD):
        sqlite_fleet.wait_for_file(f"held-{number}")

    proxy.answer(AllButTheLast([*PAGES["500"], *PAGES["404"]], paths=REPORTS))
    assert worker.stop() == 0, worker.text()
    assert proxy.pass_on() > 0

    assert sqlite_fleet.counts() == {"pending": HELD}
    assert sqlite_fleet.charged() == (0, 0)
    sqlite_fleet.tell("go")
    sqlite_fleet.remote_worker(url_of(proxy), "--slots", str(HELD))
    sqlite_fleet.wait_for_counts(succeeded=HELD)
    assert [sqlite_fleet.job(job_id).result for job_id in ids] == list(range(HELD))


class Changing(BaseHTTPRequestHandler):
    """A proxy that changes two of every three reports on their way to the control plane."""

    protocol_version = "HTTP/1.1"
    target = ""
    change: Callable[[bytes, dict[str, str]], bytes]
    number: Iterator[int]

    def do_GET(self) -> None:
        self._forward()

    def do_POST(self) -> None:
        self._forward()

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        headers = {name: self.headers.get(name, JSON) for name in ("Authorization", "Content-Type")}
        if self.path.endswith("/reports") and next(self.number) % 3 < 2:
            body = type(self).change(body, headers)
        with httpx.Client(timeout=DEADLINE_SECONDS) as client:
            response = client.request(self.command, f"{self.target}{self.path}", content=body, headers=headers)
        self.send_response(response.status_code)
        for name, value in (("Content-Type", JSON), ("Content-Length", str(len(response.content)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(response.content)

    def log_message(self, *_arguments: object) -> None:
        pass


def lose_body(_body: bytes, _headers: dict[str, str]) -> bytes:
    return b""


def cut_body(body: bytes, _headers: dict[str, str]) -> bytes:
    return body[: len(body) // 2]


def change_type(body: bytes, headers: dict[str, str]) -> bytes:
    headers["Content-Type"] = "text/plain"
    return body


def test_reports_that_are_changed_on_the_way_leave_every_job_succeeded(sqlite_fleet: Fleet, plane: Served) -> None:
    """The control plane's own 422 then says nothing about the report."""
    sqlite_fleet.tasks(TASKS)
    ids: list[str] = []

    class Changed(Changing):
        target = plane.url
        number = itertools.count()

    with ThreadingHTTPServer(("127.0.0.1", 0), Changed) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        worker = sqlite_fleet.remote_worker(f"http://127.0.0.1:{server.server_port}", "--slots", "1")
        changes: list[Callable[[bytes, dict[str, str]], bytes]] = [lose_body, cut_body, change_type]
        for change in changes:
            Changed.change = staticmethod(change)
            Changed.number = itertools.count()
            numbers = range(len(ids), len(ids) + HELD)
            ids += [sqlite_fleet.enqueue("answer", {"number": number}, **LONG_AND_ONCE) for number in numbers]
            sqlite_fleet.wait(lambda: all_are_over(sqlite_fleet), f"every job is over: {change.__name__}")
            assert next(Changed.number) > 2, "some reports were changed"
        worker.kill()
        server.shutdown()
    assert sqlite_fleet.counts() == {"succeeded": len(ids)}
    assert [sqlite_fleet.job(job_id).result for job_id in ids] == list(range(len(ids)))


def test_client_raises_store_unavailable_for_response_of_something_else_and_recovers(
    sqlite_fleet: Fleet, plane: Served, proxy: FaultProxy
) -> None:
    job = sqlite_fleet.enqueue("answer", {"number": 1})
    with closing(App(url_of(proxy), token=plane.tokens["client"])) as app:
        for page in (*PAGES["bodies and cookies that cannot be read"], ProxyResponse(200, b'{"status":"ok"}', JSON)):
            proxy.answer(Answers([page], chance=1.0))
            with pytest.raises(StoreUnavailable):
                app.store.job(job)
            proxy.pass_on()
            assert app.store.job(job).id == job, page


def test_report_that_the_store_fails_does_not_hold_up_its_neighbours(tmp_path: Path, postgres_url: str) -> None:
    """SQLSTATE 54000 says nothing about the content, and nothing about the store's other rows."""
    with Fleet(tmp_path, postgres_url) as fleet, serving(postgres_url, duties=True) as served:
        fleet.tasks(TASKS)
        good = [fleet.enqueue("answer", {"number": number}, lease_seconds=600.0) for number in range(5)]
        odd = fleet.enqueue("answer", {"number": 666}, lease_seconds=600.0)
        fails = "BEGIN RAISE EXCEPTION USING ERRCODE = '54000', MESSAGE = 'not 666'; END"
        when = "NEW.state = 'succeeded' AND NEW.result::text = '666'"
        query(postgres_url, f"CREATE FUNCTION failing() RETURNS trigger LANGUAGE plpgsql AS $$ {fails} $$")
        query(
            postgres_url,
            "CREATE TRIGGER failing BEFORE UPDATE ON holdfast_jobs"
            f" FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION failing()",
        )
        fleet.remote_worker(served.url, "--slots", "6")
        fleet.wait_for_counts(succeeded=5, running=1)
        assert {fleet.job(job_id).state for job_id in good} == {State.SUCCEEDED}
        query(postgres_url, "DROP TRIGGER failing ON holdfast_jobs")
        fleet.wait_for_counts(succeeded=6)
        assert (fleet.job(odd).result, fleet.job(odd).attempt) == (666, 1)


def test_content_that_is_bad_is_still_replaced_over_http(sqlite_fleet: Fleet, plane: Served) -> None:
    """The worker's validation passes it, the control plane's database does not."""
    sqlite_fleet.tasks(TASKS)
    good = [sqlite_fleet.enqueue("answer", {"number": number}) for number in range(10)]
    bad = sqlite_fleet.enqueue("answer", {"number": 666})
    refused = "WHEN NEW.state = 'succeeded' AND NEW.result = '666' BEGIN SELECT RAISE(ABORT, 'not 666'); END"
    query(sqlite_fleet.url, f"CREATE TRIGGER refusing BEFORE UPDATE ON holdfast_jobs {refused}")
    sqlite_fleet.remote_worker(plane.url)
    sqlite_fleet.wait(lambda: all_are_over(sqlite_fleet), "every job is over")

    assert [sqlite_fleet.job(job_id).state for job_id in good] == [State.SUCCEEDED] * 10
    error = sqlite_fleet.job(bad).last_error
    assert error is not None
    assert (error["code"], "not 666" in error["message"]) == ("unstorable_result", True)
