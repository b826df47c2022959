"""Draining while somebody holds a snapshot for minutes (Postgres): no dead row can be cleaned away meanwhile.

One worker drains, somebody enqueues as fast as it drains. Before, while and after a REPEATABLE READ transaction sits
there idle; and the same for as long without one, on a database of its own.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

import psycopg
from sqlalchemy import make_url

from benchmarks.curves.curve import Curve
from benchmarks.curves.draining import ended_since, enqueue, started, url_of
from benchmarks.databases import Databases
from benchmarks.plots import Plot, Series
from holdfast.stores.sql_store import SqlStore

BEFORE, HELD, AFTER = 60.0, 300.0, 240.0  # seconds
STOCK = 40_000  # that wait at any time
STEP_SECONDS = 2.0
DEAD = "SELECT sum(n_dead_tup) FROM pg_stat_user_tables WHERE relname = 'holdfast_jobs'"
PLAIN = "no snapshot"


@dataclass(frozen=True)
class Sample:
    at: float  # seconds since the beginning
    rate: float
    dead: int


def run(handed: Databases, scale: float) -> Curve:
    before, held, after = (max(6.0, seconds * scale) for seconds in (BEFORE, HELD, AFTER))
    way = f"snapshot from {before:.0f} to {before + held:.0f} s"
    found = {PLAIN: _observe(handed, before, held, after, hold=False)}
    found[way] = _observe(handed, before, held, after, hold=True)
    spans = {"before": (0.0, before), "first half": (before, before + held / 2)}
    spans |= {"second half": (before + held / 2, before + held), "after": (before + held, before + held + after)}
    rows = []
    for name, samples in found.items():
        rates = {span: _median(samples, *bounds) for span, bounds in spans.items()}
        ratio = f"{rates['second half'] / rates['before']:.2f}"
        back = f"{rates['after'] / rates['before']:.2f}"
        rows.append([name, *rates.values(), ratio, back, max(sample.dead for sample in samples)])
    headings = ["", *(f"{span}, jobs/s" for span in spans), "second half / before", "after / before", "most dead rows"]
    plots = {
        "": _plot("Draining while a snapshot is held", "jobs/s", found, "rate"),
        "dead": _plot("Dead rows while a snapshot is held", "dead rows of jobs", found, "dead"),
    }
    return Curve("snapshot", "Draining while a snapshot is held", headings, rows, plots)


def _plot(title: str, unit: str, found: dict[str, list[Sample]], what: str) -> Plot:
    series = [Series(name, [(s.at, getattr(s, what)) for s in samples], marks=False) for name, samples in found.items()]
    return Plot(title, "seconds", unit, series)


def _median(samples: list[Sample], low: float, high: float) -> float:
    return statistics.median([sample.rate for sample in samples if low <= sample.at < high] or [0.0])


def _observe(handed: Databases, before: float, held: float, after: float, *, hold: bool) -> list[Sample]:
    with handed.store("postgres") as store:
        enqueue(store, STOCK)
        with started(store, 1):
            since = _first_end(store)
            found = list(_samples(store, since, before))
            with _snapshot(store) if hold else _nothing():
                found += _samples(store, since, before + held)
            found += _samples(store, since, before + held + after)
        return found


def _first_end(store: SqlStore) -> datetime:
    """The worker has started when it has done something."""
    began = store.feed(None).now
    while ended_since(store, began)[2] == 0:
        time.sleep(0.1)
    return store.feed(None).now


def _samples(store: SqlStore, since: datetime, until: float) -> Iterator[Sample]:
    """Times are the store's own; the stock is filled up by what was taken."""
    last = store.feed(None).now
    while (last - since).total_seconds() < until:
        time.sleep(STEP_SECONDS)
        now = store.feed(None).now
        done = ended_since(store, last, now)[2]
        with store.database.engine.connect() as connection:
            dead = int(connection.exec_driver_sql(DEAD).scalar() or 0)
        yield Sample((now - since).total_seconds(), done / (now - last).total_seconds(), dead)
        last = now
        enqueue(store, done)


@contextmanager
def _snapshot(store: SqlStore) -> Iterator[None]:
    url = make_url(url_of(store)).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT count(*) FROM holdfast_queues")
        yield
        connection.rollback()


@contextmanager
def _nothing() -> Iterator[None]:
    yield
