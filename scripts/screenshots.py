"""Make the pictures of the README and the docs from the real thing: `python scripts/screenshots.py`.

The demo is played on a file of its own, so that there is a job whose worker was killed and a breaker that has moved.
Then a control plane and two workers run jobs on the same file for some minutes, and Debian's chromium looks at them.
Nothing is drawn by hand, and nothing is left running.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

from playwright.sync_api import Page

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
PORT = 8790
TASKS = """
import random, time
from holdfast import App, Context

app = App()
app.source("payments", rate="600/m", max_concurrent=4)
app.source("shop", rate="240/m", max_concurrent=8)

@app.task(queue="billing", source="payments", max_attempts=4)
def charge(order: int, ctx: Context) -> str:
    time.sleep(random.uniform(0.02, 0.2))
    if random.random() < 0.05:
        raise ConnectionError("payments answered 502")
    return f"receipt-{order}"

@app.task(queue="scrape", source="shop", max_attempts=1)
def collect(article: int, ctx: Context) -> dict:
    price = ctx.source("shop").cached(f"article {article % 40}", lambda: 10 + article % 90)
    time.sleep(random.uniform(0.01, 0.1))
    if article % 97 == 0:
        raise ValueError(f"article {article} has no price")
    return {"article": article, "price": price}

@app.task(queue="models", timeout="10m")
def train(run: int, ctx: Context) -> dict:
    for epoch in range(60):
        ctx.progress(epoch, 60, f"loss {1.4 / (epoch + 1):.3f}")
        ctx.log(f"epoch {epoch}", loss=round(1.4 / (epoch + 1), 3))
        time.sleep(1)
    return {"loss": 0.023}

@app.schedule("* * * * *")
@app.task(queue="reports")
def sales_report(ctx: Context) -> str:
    return "sent"
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="of load before the pictures are taken")
    parser.add_argument("--every", metavar="FOLDER", type=Path, help="keep all pictures there, to be looked at")
    options = parser.parse_args()
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="holdfast-pictures-") as name:
        folder = Path(name)
        (folder / "tasks.py").write_text(dedent(TASKS))
        environment = {**os.environ, "DATABASE_URL": f"sqlite:///{folder / 'pictures.db'}", "PYTHONPATH": str(folder)}
        holdfast(folder, environment, "demo", "--database", environment["DATABASE_URL"], "--no-wait")
        token = holdfast(folder, environment, "tokens", "create", "pictures", "--scope", "admin", "--json")
        with running(folder, environment):
            load(environment, options.minutes * 60)
            picture(folder, environment, json.loads(token)["token"])
            for taken in sorted(folder.glob("*.png")):
                if taken.stem in KEPT:
                    shutil.copy(taken, IMAGES)
                if options.every is not None:
                    shutil.copy(taken, options.every)
    return 0


def holdfast(folder: Path, environment: dict[str, str], *words: str) -> str:
    command = [sys.executable, "-m", "holdfast", *words]
    return subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


@contextmanager
def running(folder: Path, environment: dict[str, str]) -> Iterator[None]:
    commands = (
        ["serve", "--port", str(PORT)],
        ["worker", "tasks:app", "--processes", "2", "--slots", "3"],
        ["worker", "tasks:app", "--processes", "1", "--slots", "2", "--queues", "billing,scrape"],
    )
    processes = []
    try:
        for number, words in enumerate(commands):
            with (folder / f"{number}.log").open("wb") as log:
                command = [sys.executable, "-m", "holdfast", *words]
                named = {**environment, "WORKER_ID": ("control-plane", "worker-berlin", "worker-lyon")[number]}
                processes.append(subprocess.Popen(command, cwd=folder, env=named, stdout=log, stderr=log))
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(60)


def load(environment: dict[str, str], seconds: float) -> None:
    """Work as it comes: more at some times, less at others."""
    from holdfast.domain.job import NewJob
    from holdfast.wiring.sql import open_store

    store = open_store(environment["DATABASE_URL"])
    ends = time.monotonic() + seconds
    number = 0
    while time.monotonic() < ends:
        busy = 1 + (int(time.monotonic() / 45) % 3)
        jobs = []
        for _turn in range(random.randint(2, 9) * busy):
            number += 1
            jobs.append(NewJob(task="charge", queue="billing", source="payments", payload={"order": number}))
            article = {"article": number}
            jobs.append(NewJob(task="collect", queue="scrape", source="shop", payload=article, max_attempts=1))
        if number % 50 < 8:
            jobs.append(NewJob(task="train", queue="models", payload={"run": number}))
        store.enqueue_many(jobs)
        time.sleep(3)
    store.close()


def picture(folder: Path, environment: dict[str, str], token: str) -> None:
    from playwright.sync_api import sync_playwright

    from tests.dashboard.browser import FLAGS, find_browser

    killed = killed_job(environment)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=list(FLAGS))
        for theme in ("light", "dark"):
            for size, width, height in (("", 1360, 850), ("-phone", 390, 844)):
                context = browser.new_context(
                    viewport={"width": width, "height": height}, color_scheme=theme, device_scale_factor=1
                )
                url = f"http://127.0.0.1:{PORT}"
                context.add_cookies([{"name": f"holdfast_token_{PORT}", "value": token, "url": url}])
                page = context.new_page()
                for name, path in PICTURES.items():
                    take(page, url + path.format(killed=killed), folder / f"{name}-{theme}{size}.png")
                context.close()
        browser.close()


PICTURES = {
    "overview": "/",
    "jobs": "/jobs",
    "job": "/jobs/{killed}",
    "queues": "/queues",
    "workers": "/workers",
    "sources": "/sources",
    "dead": "/dead",
    "schedules": "/schedules",
    "audit": "/audit",
}
# The others are for whoever looks before a release.
KEPT = ("overview-light", "overview-dark", "job-light", "sources-dark", "jobs-dark-phone")


def take(page: Page, address: str, path: Path) -> None:
    page.goto(address)
    page.wait_for_selector("#live-state[data-state=live]")
    if page.locator("[data-range='900']").count():
        page.locator("[data-range='900']").click()
    if "/audit" in address:
        page.get_by_role("button", name="Verify").click()
        page.get_by_text("Everything holds.").wait_for()
    page.wait_for_timeout(1500)
    page.screenshot(path=path)


def killed_job(environment: dict[str, str]) -> str:
    """The one of the demo that lost its worker."""
    from holdfast.domain.feed import AuditFilter
    from holdfast.wiring.sql import open_store

    store = open_store(environment["DATABASE_URL"])
    try:
        found = store.audit(AuditFilter(events=("lease_lost",))).items
        return max(found, key=lambda item: len(store.events(item.job_id))).job_id
    finally:
        store.close()


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
