"""What goes wrong in a history, drawn once from its seed: how often calls fail and how late they are, outages of the
store and of Redis, and what happens to which process when."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

LEASE_SECONDS = 3.0

FAILED_BEFORE = "store call failed before it took effect"
REPLY_LOST = "store call committed, reply lost"
SLOW_REQUEST = "store call late to take effect"
SLOW_REPLY = "store's reply late"
STORE_AWAY = "store away"
CUT_OFF = "one process cut off from the store"
CRASHED = "process killed"
CRASHED_IN_CALL = "process killed at a store call"
STOPPED = "process stopped past its lease"
PAUSED = "process stopped for a moment"
TERMINATED = "worker told to stop"
HURRIED = "worker told to stop at once"
RUNNER_KILLED = "runner killed"
REDIS_AWAY = "Redis away"
REDIS_REPLY_LOST = "Redis did it, reply lost"
REDIS_FLUSHED = "Redis flushed"
REDIS_DUPLICATE = "message delivered twice"
CLIENT_GONE = "client killed at its call"

# Every kind that a history may show. The suite's seeds together must show them all.
FAULT_KINDS = (
    FAILED_BEFORE, REPLY_LOST, SLOW_REQUEST, SLOW_REPLY, STORE_AWAY, CUT_OFF, CRASHED, CRASHED_IN_CALL, STOPPED, PAUSED,
    TERMINATED, HURRIED, RUNNER_KILLED, REDIS_AWAY, REDIS_REPLY_LOST, REDIS_FLUSHED, REDIS_DUPLICATE, CLIENT_GONE,
)  # fmt: skip


@dataclass(frozen=True)
class Weather:
    failing: float  # of store calls, before they took effect
    losing: float  # of their replies
    slow: float  # of requests, and of replies
    crashing: float  # of processes, at a call of theirs
    outages: tuple[tuple[float, float], ...]
    cuts: tuple[tuple[float, float], ...]  # of the first worker's own line
    redis_failing: float
    redis_outages: tuple[tuple[float, float], ...]

    def is_away(self, now: float) -> bool:
        return any(start <= now < end for start, end in self.outages)

    def is_cut_off(self, host: str, now: float) -> bool:
        return host.startswith("w0.") and any(start <= now < end for start, end in self.cuts)

    @property
    def over_at(self) -> float:
        """When the last of these has ended: they may outlast the time in which clients ask."""
        return max((end for _start, end in (*self.outages, *self.cuts, *self.redis_outages)), default=0.0)

    def is_redis_away(self, now: float) -> bool:
        return any(start <= now < end for start, end in self.redis_outages)


def drawn(random: Random, horizon: float, is_streamed: bool) -> Weather:
    return Weather(
        failing=random.choice((0.0, 0.02, 0.08)),
        losing=random.choice((0.0, 0.02, 0.08)),
        slow=random.choice((0.0, 0.0, 0.02, 0.05)),
        crashing=random.choice((0.0, 0.0, 0.01)),
        outages=_outages(random, horizon, random.choice((0, 0, 0, 0, 1))),
        cuts=_outages(random, horizon, random.choice((0, 1))),
        redis_failing=random.choice((0.0, 0.05)),
        redis_outages=_outages(random, horizon, random.choice((0, 0, 1))) if is_streamed else (),
    )


def _outages(random: Random, horizon: float, count: int) -> tuple[tuple[float, float], ...]:
    starts = [random.uniform(0.1, 1.0) * horizon for _ in range(count)]
    return tuple((start, start + random.uniform(0.3, 2.0) * LEASE_SECONDS) for start in starts)
