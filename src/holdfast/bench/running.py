"""All of it in order."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path

from sqlalchemy import func, select

from holdfast.bench.crew import Crew, MemberFailed
from holdfast.bench.ground import STAMPED, Ground
from holdfast.bench.report import Drain, Enqueueing, Latency, Loop, Report
from holdfast.bench.timing import FEWEST, Stop, latency
from holdfast.bench.verdict import judge
from holdfast.bench.ways import MOST_JOBS, Ways
from holdfast.domain.job import NewJob
from holdfast.settings import Settings, mask_url
from holdfast.stores.schema import jobs
from holdfast.stores.statements.words import POSTGRES

BATCHES = (1, 10, 100)
# How the time is shared out.
ROUND_TRIP, COMMIT, FLUSH, SINGLE, BULK, LOOP, DRAIN, PICKUP = 0.03, 0.05, 0.07, 0.1, 0.1, 0.12, 0.19, 0.1
LOOK_SECONDS = 0.05
START_SECONDS = 60.0  # for a worker to begin, or to come to its end
DRAIN_PATIENCE = 4.0  # times its share: a worker is slower than a bare loop
SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.03, 0.12
FEWEST_DRAINED = 200
_CPU = Path("/proc/stat")

Told = Callable[[str], None]


def measure(ground: Ground, settings: Settings, seconds: float, stop: Stop, told: Told) -> Report:
    ways = Ways(ground, stop)
    began = time.monotonic()
    told("round trip and commit")
    round_trip = latency(ways.round_trip(ROUND_TRIP * seconds))
    commit = latency(ways.commit(COMMIT * seconds))
    flush_ms = round(ways.flush(FLUSH * seconds) * 1000, 3)
    told("enqueue")
    enqueueing = Enqueueing(
        round(ways.enqueue_single(SINGLE * seconds), 1), round(ways.enqueue_bulk(BULK * seconds), 1)
    )
    loops: list[Loop] = []
    for batch in BATCHES:
        told(f"claim and settle, {batch} at a time")
        loops.append(ways.claim_and_settle(batch, LOOP * seconds))
    told("a worker")
    ways.top_up(max(FEWEST_DRAINED, min(MOST_JOBS, int(loops[-1].per_second * DRAIN * seconds))))
    since = ground.store.feed(None).now
    with closing(Crew(settings, ground.queue)) as crew:
        drain = _drain(ground, crew, since, DRAIN_PATIENCE * DRAIN * seconds, stop)
        told("pickup")
        pickup = _pickup(ground, crew, PICKUP * seconds, stop)
    cores = os.cpu_count() or 1
    verdict = judge(
        has_wire=ground.store.database.dialect == POSTGRES,
        round_trip_ms=round_trip.p50,
        flush_ms=flush_ms,
        loops=tuple(loops),
        drain=drain,
        cores=cores,
    )
    return Report(
        store=mask_url(settings.database_url),
        dialect=ground.store.database.dialect,
        cores=cores,
        seconds=round(time.monotonic() - began, 1),
        round_trip_ms=round_trip,
        commit_ms=commit,
        flush_ms=flush_ms,
        enqueue=enqueueing,
        claim_settle=tuple(loops),
        worker=drain,
        pickup_ms=pickup,
        verdict=verdict,
    )


def _drain(ground: Ground, crew: Crew, since: datetime, seconds: float, stop: Stop) -> Drain:
    """What waited when the worker was started, from its first claim to its last report, as the store has them."""
    _wait_until(lambda: _ended(ground, since)[2] > 0, crew, START_SECONDS, stop)
    before = _cpu()
    _wait_until(lambda: not ground.is_busy(), crew, seconds + START_SECONDS, stop)
    busy = _busy(before, _cpu())
    first, last, count = _ended(ground, since)
    return Drain(os.cpu_count() or 1, count, round(count / max((last - first).total_seconds(), 1e-6), 1), busy)


def _ended(ground: Ground, since: datetime) -> tuple[datetime, datetime, int]:
    """The first claim and the last end of what succeeded since then, and how many; by the index of retention."""
    wanted = select(func.min(jobs.c.claimed_at), func.max(jobs.c.finished_at), func.count()).where(
        jobs.c.queue == ground.queue, jobs.c.state == "succeeded", jobs.c.finished_at > since
    )
    with ground.store.database.engine.connect() as connection:
        first, last, count = connection.execute(wanted).one()
    return first, last, count


def _wait_until(done: Callable[[], bool], crew: Crew, seconds: float, stop: Stop) -> None:
    until = time.monotonic() + seconds
    while not done():
        crew.check()
        if time.monotonic() > until:
            raise MemberFailed(f"The worker of the measurement was not done after {seconds:.0f} s.")
        stop.wait(LOOK_SECONDS)


def _pickup(ground: Ground, crew: Crew, seconds: float, stop: Stop) -> Latency:
    """From the call of enqueue to the first line of the task, in a worker that has nothing else to do."""
    called: dict[str, float] = {}
    until = time.monotonic() + seconds
    while len(called) < FEWEST or time.monotonic() < until:
        stop.wait(random.uniform(SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS))
        now = time.time()
        called[ground.store.enqueue(NewJob(task=STAMPED, queue=ground.queue)).id] = now
        crew.check()
    _wait_until(lambda: not ground.is_busy(), crew, START_SECONDS, stop)
    results = {job_id: ground.store.job(job_id).result for job_id in called}
    return latency([max(0.0, float(results[job_id]) - moment) for job_id, moment in called.items()])


def _cpu() -> tuple[float, float] | None:
    """Ticks that all cores were busy, and all ticks."""
    try:
        first = _CPU.read_text().splitlines()[0].split()[1:9]
    except OSError:
        return None
    ticks = [float(tick) for tick in first]
    idle = ticks[3] + ticks[4]  # idle, and waiting for the disk
    return sum(ticks) - idle, sum(ticks)


def _busy(before: tuple[float, float] | None, after: tuple[float, float] | None) -> float | None:
    if before is None or after is None or after[1] == before[1]:
        return None
    return round((after[0] - before[0]) / (after[1] - before[1]), 3)
