"""No secret is ever written, shown or exported: a control plane and two workers run at debug level with secrets that we
know, things go wrong in many ways, and then everything that came out of it is searched."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
import pytest
from sqlalchemy import make_url

from holdfast.domain.lifecycle import State
from holdfast.domain.tokens import NewToken, Scope
from holdfast.serve.dashboard.session import cookie_name
from holdfast.throwaway.process import free_port
from tests.acceptance.command_line import CommandLine
from tests.contract.ground import ByHand
from tests.serve import http
from tests.serve.grounds import WORKER, bearer
from tests.serve.operations import operations
from tests.servers.waiting import wait_until
from tests.traces.collector import Collector, collecting
from tests.worker.site import Site

PAGES = ("/", "/jobs", "/queues", "/workers", "/sources", "/dead", "/schedules", "/audit", "/sign-in", "/charts/all")
TASKS = """
    app.command("shows", ["sh", "-c", "env; tr '\\\\0' ' ' < /proc/$PPID/cmdline; tr '\\\\0' ' ' < /proc/$$/cmdline"])

    @app.task
    def works(ctx: Context) -> str:
        ctx.log("it works")
        return "done"

    @app.task(max_attempts=1)
    def fails() -> None:
        raise ConnectionError("the receiver is away")

    @app.task(max_attempts=1)
    def dies() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    @app.task
    def waits() -> None:
        Path("waiting").write_text("now")
        while not Path("go").exists():
            time.sleep(0.02)
"""


@dataclass
class Known:
    """Secrets by what they are, and everything that was seen by where."""

    secrets: dict[str, str] = field(default_factory=dict)
    seen: dict[str, str] = field(default_factory=dict)

    def found(self) -> list[tuple[str, str]]:
        return [
            (what, where) for what, text in self.secrets.items() for where, all_ in self.seen.items() if text in all_
        ]


def token(site: Site, known: Known, scope: Scope) -> str:
    text = site.store.create_token(NewToken(str(scope), (scope,))).text
    known.secrets[f"the secret of the {scope} token"] = text.rpartition("_")[2]
    return text


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


def configuration(site: Site, known: Known, collector: Collector) -> dict[str, str]:
    """All of it in the environment: what somebody types as a flag, he shows himself."""
    password = make_url(site.url).password
    assert isinstance(password, str)
    known.secrets |= {
        "the database's password": password,
        "the password of Redis": secrets.token_hex(16),
        "the webhook secret": "whsec_" + "c2VjcmV0" * 5 + secrets.token_hex(4),
    }
    return {
        "DATABASE_URL": site.url,
        "REDIS_URL": f"redis://:{known.secrets['the password of Redis']}@127.0.0.1:1/0",
        "HOLDFAST_WEBHOOK_SECRET": known.secrets["the webhook secret"],
        **collector.environment,
    }


def look_at_everything(url: str, token: str, known: Known, job_ids: list[str]) -> None:
    with http.client(base_url=url, headers=bearer(token)) as client:
        for operation in operations(url):
            if operation.method == "get":
                for job_id in job_ids[: None if "{job_id}" in operation.path else 1]:
                    path = operation.path.replace("{job_id}", job_id).replace("{name}", "x").replace("{record_id}", "x")
                    params = {"seconds": "0"} if path.endswith("/stream") else None
                    known.seen[f"GET {path}"] = client.get(path, params=params).text
        for path in ("/metrics", "/openapi.json", "/docs", "/healthz", "/readyz"):
            known.seen[path] = client.get(path).text
    cookies = {cookie_name(httpx.URL(url).port): token}
    with http.client(base_url=url, cookies=cookies) as visitor:
        for path in (*PAGES, *(f"/jobs/{job_id}{more}" for job_id in job_ids for more in ("", "/log"))):
            known.seen[f"page {path}"] = visitor.get(path).text


def do_wrong(site: Site, url: str, worker: str, known: Known) -> None:
    """Tokens in the wrong places, reports that are forged or broken."""
    site.enqueue("works", queue="by hand")
    with http.client(base_url=url, headers=bearer(worker)) as client:
        claimed = client.post(f"{WORKER}/claim", json={"worker_id": "hand", "streams": ["by hand"]}).json()
        lease = claimed["lease_token"]
        known.secrets["a lease token"] = lease
        report = {name: claimed[name] for name in ("job_id", "attempt_id", "lease_token", "stream", "message_id")}
        report |= {"worker_id": "hand"}
        answers = [
            client.post(f"{WORKER}/heartbeat", json=report),
            client.post(f"{WORKER}/complete", json={**report, "lease_token": [lease], "result": 1}),
            client.post(f"{WORKER}/complete", content=f'{{"lease_token": "{lease}"'),
            client.post(f"{WORKER}/complete", json={**report, "result": 1}),
            client.post(f"{WORKER}/fail", json={**report, "error": {"code": "E", "message": "late"}}),
            client.post("/sign-in", data={"token": f"{worker}x"}),
            client.get(f"/welcome?code={worker}x"),
        ]
        # In the wrong place: what is told to the sender may repeat it, and nobody else learns of it.
        link = site.store.create_admin_link(60.0).text
        known.secrets["the code of a one-time link"] = link.rpartition("_")[2]
        client.get("/welcome", params={"code": link}).raise_for_status()
        client.post(f"{WORKER}/complete", json={**report, "attempt_id": lease, "result": 1})
        client.post(f"{WORKER}/complete?lease_token={lease}&token={worker}", json={**report, "result": 1})
        client.get(f"/api/v1/jobs/{lease}", headers=bearer(worker[:-1]))
        for path in ("/jobs", "/api/v1/jobs"):
            client.get(path, params={"token": worker})
    known.seen["answers"] = "\n".join(answer.text + repr(answer.headers) for answer in answers)


def ask_on_the_command_line(site: Site, known: Known, environment: dict[str, str], job_id: str) -> None:
    holdfast = CommandLine(site.folder)
    away = {**environment, "DATABASE_URL": str(make_url(site.url).set(port=1).render_as_string(hide_password=False))}
    broken = {**environment, "DATABASE_URL": environment["DATABASE_URL"].replace("postgresql", "postgresq")}
    no_token = {**environment, "DATABASE_URL": "http://127.0.0.1:1", "HOLDFAST_TOKEN": known.secrets["a lease token"]}
    for name, words, variables in (
        ("show", ("jobs", "show", job_id), environment),
        ("tokens", ("tokens", "list", "--json"), environment),
        ("doctor", ("doctor",), environment),
        ("away", ("jobs", "list"), away),
        ("doctor, away", ("doctor", "--json"), away),
        ("broken", ("jobs", "list"), broken),
        ("no token", ("jobs", "list"), no_token),
    ):
        done = holdfast(*words, **variables)
        known.seen[f"holdfast {name}"] = done.out + done.err
        assert "Traceback" not in done.err


def is_ready(url: str) -> bool:
    try:
        return http.get(f"{url}/readyz").status_code == 200
    except httpx.TransportError:
        return False


def note_processes(known: Known, *pids: int) -> None:
    """Arguments can be read by everybody on the machine."""
    family = [child for pid in pids for child in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True))]
    assert len(family) > len(pids)
    known.seen["arguments"] = "\n".join(" ".join(process.cmdline()) for process in family)


def test_no_secret_is_in_what_was_written_shown_or_exported(
    postgres_url: str, tmp_path: Path, collector: Collector
) -> None:
    known = Known()
    with Site(tmp_path, postgres_url) as site:
        site.tasks(TASKS)
        environment = configuration(site, known, collector)
        tokens = {scope: token(site, known, scope) for scope in (Scope.ADMIN, Scope.WORKER)}
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        over_http = {"HOLDFAST_CONTROL_PLANE": url, "HOLDFAST_TOKEN": tokens[Scope.WORKER]}
        serve = site.start("serve", "--port", str(port), url="", **environment)
        site.workers.append(serve)
        direct = site.start("worker", "tasks:app", "--queues", "near", "--processes", "1", url="", **environment)
        site.workers.append(direct)
        without = {name: value for name, value in environment.items() if name not in ("DATABASE_URL", "REDIS_URL")}
        words = ("worker", "tasks:app", "--queues", "far", "--processes", "1", "--log-format", "pretty")
        remote = site.start(*words, url="", **without, **over_http)
        site.workers.append(remote)
        names = ("works", "fails", "dies", "shows")
        jobs = [site.enqueue(name, queue=queue, max_attempts=1) for name in names for queue in ("near", "far")]
        for job_id in jobs:
            site.wait_for_state(job_id, State.SUCCEEDED, State.FAILED)
        waiting = site.enqueue("waits", queue="far")
        site.wait_for_file("waiting")
        wait_until(lambda: is_ready(url), what="it is ready")
        note_processes(known, serve.pid, direct.pid, remote.pid)
        do_wrong(site, url, tokens[Scope.WORKER], known)
        look_at_everything(url, tokens[Scope.ADMIN], known, [*jobs, waiting])
        ask_on_the_command_line(site, known, environment, jobs[0])
        site.tell("go")
        site.wait_for_state(waiting, State.SUCCEEDED)
        for process in (remote, direct, serve):
            process.stop()
            known.seen[process.log.name + str(process.pid)] = process.text()
        shown = [site.store.logs(job_id) for job_id in jobs[-2:]]
        known.seen["what commands found"] = repr(shown)
        assert "HOLDFAST_JOB_ID" in known.seen["what commands found"], "they did print their environment"
        by_hand = ByHand(postgres_url)
        known.seen["the database"] = json.dumps(by_hand.everything())
        by_hand.engine.dispose()
    known.seen["spans"] = repr(collector.spans())
    assert jobs[0] in known.seen["spans"]
    assert all(jobs[0] in known.seen[where] for where in ("page /jobs", "the database", "GET /api/v1/jobs"))
    assert known.found() == []
