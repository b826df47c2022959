"""What goes wrong in a history, drawn once from its seed: how often calls fail and how late they are, outages of the
store and of Redis, and what happens to which process when."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

LEASE_SECONDS = 3.0
UNKNOWN_SHARE = 0.5  # of calls and replies, while such errors come

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
UNKNOWN_BEFORE = "store call failed with an unknown error"
UNKNOWN_AFTER = "store call committed, unknown error in place of the reply"
READ_ONLY = "store read-only"
IDLE_CUT = "session closed while it was idle"
POISON_PAYLOAD = "payload that cannot be decoded"

# Every kind that a history may show. The suite's seeds together must show them all.
FAULT_KINDS = (
    FAILED_BEFORE, REPLY_LOST, SLOW_REQUEST, SLOW_REPLY, STORE_AWAY, CUT_OFF, CRASHED, CRASHED_IN_CALL, STOPPED, PAUSED,
    TERMINATED, HURRIED, RUNNER_KILLED, REDIS_AWAY, REDIS_REPLY_LOST, REDIS_FLUSHED, REDIS_DUPLICATE, CLIENT_GONE,
    UNKNOWN_BEFORE, UNKNOWN_AFTER, READ_ONLY, IDLE_CUT, POISON_PAYLOAD,
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
    unknown: tuple[tuple[float, float], ...]  # calls get errors that say nothing about the request
    idle: float  # of sessions that were idle: closed
    read_only: tuple[tuple[float, float], ...]
    poison: int  # jobs whose payload cannot be decoded

    def is_away(self, now: float) -> bool:
        return any(start <= now < end for start, end in self.outages)

    def is_cut_off(self, host: str, now: float) -> bool:
        return host.startswith("w0.") and any(start <= now < end for start, end in self.cuts)

    @property
    def over_at(self) -> float:
        """When the last of these has ended: they may outlast the time in which clients ask."""
        return max(
            (end for _start, end in (*self.outages, *self.cuts, *self.redis_outages, *self.read_only, *self.unknown)),
            default=0.0,
        )

    def is_redis_away(self, now: float) -> bool:
        return any(start <= now < end for start, end in self.redis_outages)

    def is_unknown(self, now: float, more: Random) -> bool:
        return any(start <= now < end for start, end in self.unknown) and more.random() < UNKNOWN_SHARE

    def is_read_only(self, now: float) -> bool:
        return any(start <= now < end for start, end in self.read_only)


def drawn(random: Random, more: Random, horizon: float, is_streamed: bool) -> Weather:
    """`more` draws the kinds that were added later, for half of all seeds: the others keep their histories."""
    has_more = more.random() < 0.5
    return Weather(
        failing=random.choice((0.0, 0.02, 0.08)),
        losing=random.choice((0.0, 0.02, 0.08)),
        slow=random.choice((0.0, 0.0, 0.02, 0.05)),
        crashing=random.choice((0.0, 0.0, 0.01)),
        outages=_outages(random, horizon, random.choice((0, 0, 0, 0, 1))),
        cuts=_outages(random, horizon, random.choice((0, 1))),
        redis_failing=random.choice((0.0, 0.05)),
        redis_outages=_outages(random, horizon, random.choice((0, 0, 1))) if is_streamed else (),
        unknown=_outages(more, horizon, more.choice((0, 1)) if has_more else 0),
        idle=more.choice((0.0, 0.2, 0.5)) if has_more else 0.0,
        read_only=_outages(more, horizon, more.choice((0, 0, 1)) if has_more else 0),
        poison=more.choice((0, 0, 1, 2)) if has_more else 0,
    )


def _outages(random: Random, horizon: float, count: int) -> tuple[tuple[float, float], ...]:
    starts = [random.uniform(0.1, 1.0) * horizon for _ in range(count)]
    return tuple((start, start + random.uniform(0.3, 2.0) * LEASE_SECONDS) for start in starts)
