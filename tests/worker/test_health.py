"""What orchestrators ask a worker, and what it tells systemd."""

import json
import re
import signal
import socket
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from holdfast.domain.lifecycle import State
from holdfast.throwaway.process import free_port
from tests.servers.waiting import DEADLINE_SECONDS
from tests.worker.site import Site

TASKS = """
@app.task
def nothing(): pass

@app.task
def waits():
    Path(__file__).with_name("started").write_text("yes")
    while not Path(__file__).with_name("go").exists():
        time.sleep(0.02)
"""
# Importing takes as long as the test likes.
SLOW_IMPORT = """
while not Path(__file__).with_name("import").exists():
    time.sleep(0.02)
"""


class Probe:
    """Asks as a kubelet does. A refused connection is an answer too: 0."""

    def __init__(self) -> None:
        self.address = f"127.0.0.1:{free_port()}"

    def get(self, path: str) -> tuple[int, str]:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"http://{self.address}{path}", timeout=DEADLINE_SECONDS) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def status(self, path: str) -> int:
        return self.get(path)[0]

    def detail(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.get(path)[1])
        return found


def test_worker_is_ready_once_connected_and_not_while_it_drains(postgres_site: Site) -> None:
    site = postgres_site
    site.tasks(SLOW_IMPORT + TASKS)
    probe = Probe()
    worker = site.worker("--processes", "1", "--grace", "600s", "--health", probe.address)
    site.wait(lambda: probe.status("/healthz") == 200, "the worker is alive")
    assert probe.status("/readyz") == 503
    assert probe.detail("/readyz")["state"] == "starting"
    (site.folder / "import").write_text("go on")
    site.wait(lambda: probe.status("/readyz") == 200, "the worker is ready")
    job = site.enqueue("waits")
    site.wait_for_file("started")
    # Its code begins, and the supervisor hears of it a moment later.
    site.wait(lambda: probe.detail("/readyz")["running"] == 1, "the job is counted")
    worker.send(signal.SIGTERM)
    site.wait(lambda: probe.status("/readyz") == 503, "the worker is not ready any more")
    assert probe.detail("/readyz")["state"] == "draining"
    assert probe.status("/healthz") == 200
    (site.folder / "go").write_text("go")
    assert worker.wait() == 0
    assert site.job(job).state is State.SUCCEEDED
    assert probe.status("/healthz") == 0


def metric(text: str, line: str) -> float:
    [value] = re.findall(rf"^{re.escape(line)} (\S+)$", text, re.MULTILINE)
    return float(value)


def test_metrics_show_the_workers_state_and_count_its_jobs(sqlite_site: Site) -> None:
    site = sqlite_site
    site.tasks(TASKS)
    probe = Probe()
    site.worker("--processes", "1", "--health", probe.address)
    jobs = [site.enqueue("nothing") for _ in range(3)]
    for job in jobs:
        site.wait_for_state(job, State.SUCCEEDED)

    def counted() -> bool:
        status, text = probe.get("/metrics")
        line = 'holdfast_runs_total{outcome="succeeded",status="applied",task="nothing"}'
        return status == 200 and line in text and metric(text, line) == 3

    site.wait(counted, "three runs are counted")
    _status, text = probe.get("/metrics")
    states = dict(re.findall(r'^holdfast_worker_state{state="(\w+)"} (\S+)$', text, re.MULTILINE))
    assert sum(float(value) for value in states.values()) == 1
    assert metric(text, "holdfast_claimed_jobs_total") == 3
    assert probe.status("/nothing") == 404


def test_systemd_is_told_when_the_worker_is_ready_and_when_it_stops(sqlite_site: Site, tmp_path: Path) -> None:
    site = sqlite_site
    site.tasks(TASKS)
    address = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(address))
        systemd.settimeout(DEADLINE_SECONDS)
        worker = site.worker("--processes", "1", NOTIFY_SOCKET=str(address), WATCHDOG_USEC="400000")
        told = ""
        while "READY=1" not in told or "WATCHDOG=1" not in told:
            told += systemd.recv(4096).decode() + "\n"
        assert "STOPPING=1" not in told
        worker.send(signal.SIGTERM)
        while "STOPPING=1" not in told:
            told += systemd.recv(4096).decode() + "\n"
    assert worker.wait() == 0
    assert told.index("READY=1") < told.index("STOPPING=1")
