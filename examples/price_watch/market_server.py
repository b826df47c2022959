"""Three marketplaces that misbehave on purpose, on loopback. They stand for the ones that do so by themselves.

What is for sale depends on the seed and the coin. When something goes wrong depends on the seed and on how many
requests a marketplace has had: `plan` says it; `break_down` and `repair` are for who wants to see it happen. Every
request is remembered, for the report: what a governor is worth is best told by those who are governed.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import ceil
from urllib.parse import parse_qs, urlsplit

from examples.price_watch import listings

Plan = dict[str, dict[int, "Fault"]]


@dataclass(frozen=True, slots=True)
class Throttle:
    """429, and when to come back: in seconds, or as a date."""

    seconds: int
    as_date: bool = False


@dataclass(frozen=True, slots=True)
class Break:
    """500."""


@dataclass(frozen=True, slots=True)
class Dawdle:
    """The right answer, late."""

    seconds: float


Fault = Throttle | Break | Dawdle


def plan(seed: int) -> Plan:
    """What goes wrong with which request. The burst of 500s is one longer than a breaker of three needs to open."""
    pick = random.Random(seed)
    first, broken, slow = pick.randint(2, 4), pick.randint(2, 4), pick.randint(2, 4)
    return {
        "auctionhouse": {first: Throttle(1), first + 5: Throttle(1, as_date=True)},
        "bourse": {broken + number: Break() for number in range(4)},
        "flea": {slow: Dawdle(0.4), slow + 3: Dawdle(3.0)},
    }


@dataclass(frozen=True, slots=True)
class Request:
    marketplace: str
    answer: str
    too_early: bool  # it came before the time that we had asked to wait for


class Market(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 32

    def __init__(self, seed: int, planned: Plan | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seed = seed
        self.requests: list[Request] = []
        self.closing = threading.Event()
        self._plan = plan(seed) if planned is None else planned
        self._broken: set[str] = set()
        self._counts: Counter[str] = Counter()
        self.not_before: dict[str, float] = {}
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def next_fault(self, marketplace: str) -> Fault | None:
        """What shall go wrong with the request that has just come in."""
        with self._lock:
            self._counts[marketplace] += 1
            planned = self._plan.get(marketplace, {}).get(self._counts[marketplace])
            fault = Break() if marketplace in self._broken else planned
            too_early = time.time() < self.not_before.get(marketplace, 0.0)
            self.requests.append(Request(marketplace, "ok" if fault is None else type(fault).__name__, too_early))
            if isinstance(fault, Throttle):
                self.not_before[marketplace] = _until(fault)
            return fault

    def break_down(self, marketplace: str) -> None:
        """From now on it answers with 500, whatever the plan says."""
        with self._lock:
            self._broken.add(marketplace)

    def repair(self, marketplace: str) -> None:
        with self._lock:
            self._broken.discard(marketplace)

    def handle_error(self, request: object, client_address: object) -> None:
        """Somebody who hung up while we dawdled is no news."""


class _Handler(BaseHTTPRequestHandler):
    server: Market
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        place = urlsplit(self.path)
        marketplace = place.path.split("/")[1]
        if marketplace not in listings.ANSWERS:
            self._say(HTTPStatus.NOT_FOUND, {})
            return
        wanted = {name: values[0] for name, values in parse_qs(place.query).items()}
        match self.server.next_fault(marketplace):
            case Throttle() as throttle:
                until = self.server.not_before[marketplace]
                when = formatdate(until, usegmt=True) if throttle.as_date else str(throttle.seconds)
                self._say(HTTPStatus.TOO_MANY_REQUESTS, {"error": "slow down"}, when)
            case Break():
                self._say(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": "it is not you, it is us"})
            case Dawdle(seconds):
                self.server.closing.wait(seconds)
                self._say(HTTPStatus.OK, listings.answer(marketplace, wanted, self.server.seed))
            case None:
                self._say(HTTPStatus.OK, listings.answer(marketplace, wanted, self.server.seed))

    def _say(self, status: HTTPStatus, body: object, retry_after: str | None = None) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if retry_after is not None:
            self.send_header("Retry-After", retry_after)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nobody wants to read it."""


def _until(throttle: Throttle) -> float:
    return (ceil(time.time()) if throttle.as_date else time.time()) + throttle.seconds  # a date has whole seconds


@contextmanager
def running(seed: int, planned: Plan | None = None) -> Iterator[Market]:
    with Market(seed, planned) as market:
        thread = threading.Thread(target=market.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield market
        finally:
            market.closing.set()
            market.shutdown()
            thread.join()
