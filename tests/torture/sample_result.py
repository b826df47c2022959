"""A made-up run, as long and as troubled as one likes; the same for the same seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from holdfast.torture.results import Broken, Life, Load, Result, Second, Strike


@dataclass(frozen=True)
class Fault:
    kind: str
    targets: tuple[str, ...]
    lasts: tuple[float, float]
    bound: float | None
    what: str


WORKERS = {
    "database": ("worker-database-1", "worker-database-2"),
    "http": ("worker-http-1", "worker-http-2"),
    "redis": ("worker-redis-1",),
    "rq": ("worker-rq-1", "worker-rq-2"),
    "control plane": ("control-plane-1", "control-plane-2"),
    "client": ("client-1", "client-2"),
}
MEMBERS = tuple(name for names in WORKERS.values() for name in names)
DATABASE, REDIS = ("the way to the database",), ("redis",)
FAULTS = (
    Fault("kill", MEMBERS, (0.0, 0.0), 9.0, "jobs claimed again"),
    Fault("kill runner", MEMBERS[:7], (0.0, 0.0), 9.0, "jobs claimed again"),
    Fault("stop past the lease", MEMBERS[:7], (3.0, 6.0), 9.0, "jobs claimed again"),
    Fault("terminate storm", MEMBERS[:7], (2.0, 5.0), 12.0, "every worker is back"),
    Fault("rolling deploy", ("all workers",), (6.0, 15.0), 20.0, "every worker is back"),
    Fault("postgres restart", ("postgres",), (1.0, 4.0), 20.0, "the next claim"),
    Fault("backends terminated", ("postgres",), (0.0, 0.0), 10.0, "the next claim"),
    Fault("connections reset", DATABASE, (0.0, 0.0), 10.0, "the next claim"),
    Fault("black hole", DATABASE, (2.0, 6.0), 15.0, "the next claim"),
    Fault("slow", DATABASE, (4.0, 10.0), 10.0, "the next claim"),
    Fault("reply cut after commit", DATABASE, (2.0, 6.0), None, ""),
    Fault("redis flushed", REDIS, (0.0, 0.0), 10.0, "the next delivery"),
    Fault("redis frozen", REDIS, (3.0, 8.0), 10.0, "the next delivery"),
    Fault("redis restart", REDIS, (1.0, 3.0), 10.0, "the next delivery"),
    Fault("duplicate delivery", REDIS, (2.0, 6.0), None, ""),
    Fault("reordered delivery", REDIS, (2.0, 6.0), None, ""),
    Fault("clock jump", MEMBERS[:7], (5.0, 15.0), None, ""),
    Fault("long snapshot", ("postgres",), (10.0, 30.0), None, ""),
)
LEFT_OUT = {"disk full": "no tmpfs may be mounted here: it takes root"}
RULES = (
    "the rules of `holdfast verify`",
    "an acknowledged job exists",
    "an accepted outcome is in the log",
    "a refused report changes nothing",
    "leases of a job never overlap",
    "a job ends once",
    "user code never runs beside itself longer than the grace",
    "a limit of a source is never exceeded",
    "each tick of a schedule makes one job",
    "after the faults everything drains",
    "recovery is within its bound",
)


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
        fault = FAULTS[number % len(FAULTS)] if number < len(FAULTS) else random.choice(FAULTS)
        at = random.uniform(0.02, 0.97) * seconds
        until = min(at + random.uniform(*fault.lasts), float(seconds))
        took = None if fault.bound is None else min(random.lognormvariate(-1.3, 0.5), 0.96) * fault.bound
        what = f"{random.randrange(1, 5)} {fault.what}" if fault.what.startswith("jobs") else fault.what
        target = random.choice(fault.targets)
        yield Strike(fault.kind, target, at, until, "", took, fault.bound, what)


def _timeline(random: Random, seconds: int, strikes: tuple[Strike, ...]) -> Iterator[Second]:
    outages = [s for s in strikes if s.kind in ("postgres restart", "black hole")]
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
                ending = {"kill": "killed", "terminate storm": "terminated", "rolling deploy": "terminated"}.get(
                    strike.kind
                )
                if ending and strike.target in (name, "all workers") and strike.at > began:
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
    yield Broken(
        "leases of a job never overlap", "attempt 1 ended at 12:07.010, attempt 2 began before", job_id, history
    )
    yield Broken("leases of a job never overlap", "the same with more around it", job_id, (*history, *history))
    yield Broken("an acknowledged job exists", "no row and no event of it", job_id.replace("8b40", "8b41"), history[:1])
    yield Broken("after the faults everything drains", "3 jobs were still pending after 60 s")
