"""The one command: marketplaces, workers, a morning and an afternoon of intakes, and what came of it."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self, TypeVar

from examples.price_watch import report
from examples.price_watch.coin import Coin
from examples.price_watch.market_server import running
from examples.price_watch.marketplaces import MARKETPLACES
from examples.price_watch.tasks import COLLECTING, VALUING, Collected, app, collect
from holdfast import Handle, HoldfastError

ROOT = Path(__file__).parents[2]  # where `examples.price_watch` can be imported
PATIENCE_SECONDS = 90.0

MORNING = {
    "A-101": "1881-S Morgan Dollar MS64",
    "A-102": "1916-D Mercury Dime VG8",
    "A-103": "1921 Walking Liberty Half Dollar F12",
    "A-104": "1889-CC Morgan dollar VF20",
    "A-105": "1937-D Buffalo Nickel XF40",
    "A-106": "1909-S Lincoln cent F12",
}
# The same coins come in again, described by another clerk: everything about them is in the cache.
AFTERNOON = {
    "A-107": "1881 S MORGAN dollar, ms-64",
    "A-108": "1916 d mercury   DIME (vg 8)",
}


Result = TypeVar("Result")


class Stuck(Exception):
    """It takes too long, or a worker has ended."""


class Crew:
    """Real workers, `holdfast worker`, as they would run on several machines; until the block is left."""

    def __init__(self, count: int, environment: Mapping[str, str]) -> None:
        flags = ["--queues", f"{COLLECTING},{VALUING}", "--processes", "1", "--slots", "4", "--grace", "2s"]
        worker = ["worker", "examples.price_watch.tasks:app", *flags, "--log-level", "warning"]
        self._command = [sys.executable, "-m", "holdfast", *worker]
        # Not as arguments, which everybody can read: the URL of a database carries its password.
        self._environment = {**os.environ, **environment, "NO_PROXY": "127.0.0.1"}
        self._count = count
        self._workers: list[subprocess.Popen[bytes]] = []
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the block is left

    def __enter__(self) -> Self:
        try:
            for _ in range(self._count):
                self._workers.append(self._start())
        except BaseException:  # the block is not entered, so nobody else would stop those that have started
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def wait_for(self, job: Handle[Result]) -> Result:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return job.result("2s")
            except TimeoutError as error:
                if time.monotonic() > deadline or any(worker.poll() is not None for worker in self._workers):
                    raise Stuck(f"{error}; the workers said:\n{self._said()}") from None

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._command,
            cwd=ROOT,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,  # Ctrl-C is for us, and we stop them
        )

    def _stop(self) -> None:
        for worker in self._workers:
            worker.terminate()
        for worker in self._workers:
            worker.wait()
        self._log.close()

    def _said(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")[-4000:]


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    with _database(options.database) as url, running(options.seed) as market:
        app.replace_store(url)
        try:
            app.store.limit_queue(VALUING, 1)
            with Crew(options.workers, {"DATABASE_URL": url, "PRICE_WATCH_MARKETS": market.url}) as crew:
                print(f"{len(MORNING)} coins come in; {len(MARKETPLACES)} marketplaces are asked for each.", flush=True)
                jobs = _appraise(crew, MORNING)
                print(f"Later that day {len(AFTERNOON)} of them come in again.", flush=True)
                jobs += _appraise(crew, AFTERNOON)
            report.show(app, MORNING | AFTERNOON, jobs, market.requests)
        except (Stuck, HoldfastError) as error:
            print(f"price watch: {error}", file=sys.stderr)
            return 1
        finally:
            app.close()
    return 0


def _appraise(crew: Crew, intakes: Mapping[str, str]) -> list[Handle[Collected]]:
    """Ask every marketplace for every coin, and wait until each has been valued with all that was found."""
    asked = [
        collect.using(source=marketplace).enqueue(intake, Coin.from_title(title), marketplace)
        for intake, title in intakes.items()
        for marketplace in MARKETPLACES
    ]
    for valuation in [crew.wait_for(job).valuation for job in asked]:
        crew.wait_for(app.handle(valuation))
    return asked


@contextmanager
def _database(named: str | None) -> Iterator[str]:
    """The one that was named, which must be up to date (`holdfast db upgrade`), or one for this run alone."""
    if named is not None:
        yield named
        return
    with tempfile.TemporaryDirectory(prefix="price-watch-") as folder:
        yield f"sqlite:///{folder}/price-watch.db"


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.price_watch", description=__doc__)
    parser.add_argument("--database", metavar="URL", help="keep everything here; else in a file that is gone after")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="worker processes (default 2)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="other prices, and other moments to misbehave")
    options = parser.parse_args(arguments)
    if options.workers < 1:
        parser.error(f"--workers: must be at least 1, got {options.workers}")
    return options
