"""A made-up run, as long and as troubled as one likes; the same for the same seed."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from holdfast.torture.checker.rules import SENTENCES
from holdfast.torture.faults import KINDS
from holdfast.torture.results import Broken, Life, Load, Result, Second, Strike

WORKERS = {
    "database": ("worker-database-1", "worker-database-2"),
    "http": ("worker-http-1", "worker-http-2"),
    "redis": ("worker-redis-1",),
    "rq": ("worker-rq-1", "worker-rq-2"),
    "control plane": ("plane-1", "plane-2"),
    "client": ("client-1", "client-2"),
}
MEMBERS = tuple(name for names in WORKERS.values() for name in names)
EVERYBODY = "everybody"
LEFT_OUT = {"disk-full": "no tmpfs may be mounted here: it takes root"}
FAULTS = tuple(name for name in KINDS if name not in LEFT_OUT)
RULES = tuple(SENTENCES)
LASTING = {
    "worker-frozen": 6.0,
    "tree-frozen": 6.0,
    "plane-frozen": 5.0,
    "term-storm": 5.0,
    "rolling-deploy": 15.0,
    "postgres-stopped": 4.0,
    "snapshot-held": 30.0,
    "locks-held": 4.0,
    "black-hole": 6.0,
    "slow-way": 10.0,
    "refused": 5.0,
    "replies-cut": 6.0,
    "redis-frozen": 8.0,
    "redis-restarted": 3.0,
}
HARMLESS = ("snapshot-held", "messages-doubled", "messages-shuffled", "clock-jumped")
ENDINGS = {
    "worker-killed": "killed",
    "plane-killed": "killed",
    "client-killed": "killed",
    "term-storm": "terminated",
    "rolling-deploy": "terminated",
}


def sample_result(seed: int = 7, seconds: int = 1_800, strikes: int = 300, *, broken: bool = False) -> Result:
    random = Random(seed)
    struck = tuple(sorted(_strikes(random, seconds, strikes), key=lambda strike: strike.at))
    timeline = tuple(_timeline(random, seconds + 14, struck))
    ended = sum(second.ended for second in timeline)
    return Result(
        seed=seed,
        command=f"holdfast --database postgresql://torture:***@127.0.0.1/torture torture --minutes 30 --seed {seed}",
        store="postgresql://torture:***@127.0.0.1:5432/torture",
        dialect="postgresql",
        versions={"holdfast": "0.1.0", "python": "3.12.9", "database": "PostgreSQL 17.4", "redis": "7.2.8"},
        lease_seconds=2.0,
        began_at="2025-11-18T09:30:00Z",
        seconds=float(seconds),
        drained_seconds=11.6,
        load=_load(random, ended, seconds + 11.6, sum(second.lost for second in timeline)),
        strikes=struck,
        left_out=LEFT_OUT,
        broken=tuple(_broken()) if broken else (),
        rules_checked={rule: random.randrange(1, 3) * ended for rule in RULES},
        timeline=timeline,
        lives=tuple(_lives(random, seconds + 14.0, struck)),
    )


def empty_result() -> Result:
    """No jobs, no faults, nobody there."""
    load = Load(0.0, 0, 0, 0, {}, {}, {}, 0, 0, 0, 0, 0)
    return Result(1, "holdfast torture --seed 1", "x.db", "sqlite", {}, 2.0, "", 0.0, None, load, (), {}, (), {})


def _strikes(random: Random, seconds: int, count: int) -> Iterator[Strike]:
    for number in range(count):
        kind = FAULTS[number % len(FAULTS)] if number < len(FAULTS) else random.choice(FAULTS)
        at = random.uniform(0.02, 0.97) * seconds
        until = min(at + random.uniform(0.4, 1.0) * LASTING.get(kind, 0.0), float(seconds))
        bound = None if kind in HARMLESS else random.choice((10.0, 10.0, 30.0))
        took = None if bound is None else min(random.lognormvariate(-1.3, 0.5), 0.96) * bound
        what = f"{random.randrange(1, 5)} jobs moved on; open: database, http"
        yield Strike(kind, random.choice(_targets(kind)), at, until, "", took, bound, what if took else "")


def _targets(kind: str) -> tuple[str, ...]:
    first = {"tree": "worker", "runner": "worker", "clock": "worker"}.get(
        kind.partition("-")[0], kind.partition("-")[0]
    )
    if kind in ("term-storm", "rolling-deploy"):
        return (EVERYBODY,)
    if first in ("postgres", "backends", "snapshot", "locks"):
        return ("postgres",)
    if first in ("redis", "messages"):
        return ("redis",)
    named = tuple(name for name in MEMBERS if name.startswith(first))
    return named or ("the way to the database", "the way to the control planes")


def _timeline(random: Random, seconds: int, strikes: tuple[Strike, ...]) -> Iterator[Second]:
    outages = [s for s in strikes if s.kind in ("postgres-stopped", "black-hole")]
    waiting = 40
    for at in range(seconds):
        is_over = at >= seconds - 14
        is_out = any(strike.at <= at <= strike.until for strike in outages)
        is_shaken = any(strike.at <= at <= strike.until + 3 for strike in strikes)
        accepted = 0 if is_out or is_over else random.randrange(55, 75)
        claimed = 0 if is_out else min(waiting + accepted, random.randrange(50, 130))
        waiting += accepted - claimed
        lost = random.choice((0, 1, 2, 4)) if is_shaken and not is_out else 0
        yield Second(at, accepted, claimed, max(claimed - lost, 0), lost, 0 if is_over else 14, waiting)


def _lives(random: Random, end: float, strikes: tuple[Strike, ...]) -> Iterator[Life]:
    for door, names in WORKERS.items():
        for name in names:
            began = random.uniform(0.0, 1.5)
            for strike in strikes:
                ending = ENDINGS.get(strike.kind)
                if ending and strike.target in (name, EVERYBODY) and strike.at > began:
                    yield Life(name, door, began, strike.at, ending)
                    began = strike.at + random.uniform(0.3, 1.5)
            yield Life(name, door, began, end, "still there")


def _load(random: Random, jobs: int, seconds: float, lost: int) -> Load:
    failed, cancelled = jobs // 40, jobs // 90
    by_door = {"database": jobs * 4 // 10, "http": jobs * 3 // 10, "redis": jobs // 5, "rq": jobs // 10}
    tasks = ("quick", "slow", "flaky", "crashing", "governed", "scheduled", "cached", "command")
    return Load(
        seconds=seconds,
        jobs=jobs,
        events=jobs * 6 + random.randrange(1_000),
        acknowledged=jobs - 12,
        by_state={"succeeded": jobs - failed - cancelled, "failed": failed, "cancelled": cancelled},
        by_door=by_door,
        by_task={task: jobs // (number + 3) for number, task in enumerate(tasks)},
        attempts=jobs + 3 * failed + lost,
        leases_lost=lost,
        refusals=lost // 2,
        executions=jobs + 2 * failed,
        ticks=int(seconds) // 5,
    )


def _broken() -> Iterator[Broken]:
    job_id = "0199a6f2-7c1e-7b9d-9a53-2f5d6c1e8b40"
    history = (
        "12:04.112  client-1           intended (task slow)",
        "12:04.131  audit log          enqueued, pending",
        "12:04.388  audit log          claimed by worker-database-1, attempt 1, lease 5f0a",
        "12:06.401  audit log          lease_lost of worker-database-1, retryable",
        "12:06.902  audit log          claimed by worker-http-2, attempt 2, lease 91cc",
        "12:07.010  audit log          succeeded by worker-database-1, attempt 1, lease 5f0a",
    )
    yield Broken("lease_overlap", "attempt 1 ended at 12:07.010, attempt 2 began before", job_id, history)
    yield Broken("lease_overlap", "the same with more around it", job_id, (*history, *history))
    yield Broken("lost", "no row and no event of it", job_id.replace("8b40", "8b41"), history[:1])
    yield Broken("not_ended", "3 jobs were still pending after 60 s")
