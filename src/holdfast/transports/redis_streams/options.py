"""What the transport is told."""

from __future__ import annotations

from dataclasses import dataclass, field

DEFAULT_PREFIX = "holdfast"
DEFAULT_WINDOW = 1_000
DEFAULT_TIMEOUT_SECONDS = 0.25
LOOK_SECONDS = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    url: str = field(repr=False)
    prefix: str = DEFAULT_PREFIX
    window: int = DEFAULT_WINDOW  # messages that a stream holds at most
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS  # for an answer of Redis
    sweep_seconds: float = 3.0
    sweep_timeout_seconds: float = 2.0  # a sweep moves a whole window, and nobody waits for it
    # A message that somebody has held for so long without a lease on its job is taken over.
    takeover_seconds: float = 15.0
    forget_consumer_seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class Names:
    """The keys that a fleet uses in Redis, all under its prefix."""

    prefix: str

    @property
    def streams(self) -> str:
        """What stands before the name of a queue."""
        return f"{self.prefix}:stream:"

    def stream(self, queue: str) -> str:
        return self.streams + queue

    @property
    def queues(self) -> str:
        """A set: the queues that have had a message."""
        return f"{self.prefix}:queues"

    @property
    def dead(self) -> str:
        return f"{self.prefix}:dead"

    @property
    def wake(self) -> str:
        """The channel on which new messages are announced."""
        return f"{self.prefix}:wake"


GROUP = "holdfast"
