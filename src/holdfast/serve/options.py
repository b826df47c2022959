"""What a control plane is told at start."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.domain.timing import Timing, choose
from holdfast.wiring.redis import StreamOptions

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8787


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one client may ask of the server."""

    body_bytes: int = 8 * 1024 * 1024  # of a batch
    single_body_bytes: int = 1024 * 1024  # of any other request
    body_seconds: float = 15.0  # in which a body must have arrived
    body_depth: int = 100
    requests_per_second: float = 2_000.0  # of one credential, on average
    burst: int = 4_000
    failures_per_second: float = 50.0  # requests of one address without a valid token
    failure_burst: int = 2_000
    head_bytes: int = 64 * 1024
    head_seconds: float = 10.0  # in which a request's head must have arrived, and a new connection's first
    connections: int = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Threads:
    """How many calls to the store may be under way at once, by what they are for; each has a connection of its own."""

    control: int = 4
    claims: int = 4
    writes: int = 4
    reads: int = 4
    tokens: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    database_url: str = field(repr=False)
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    name: str = "control-plane"  # the holder of its turns at periodic duties
    notify: bool = True
    listen_url: str | None = field(default=None, repr=False)
    redis: StreamOptions | None = None  # whose streams carry the ids of jobs
    rq_url: str | None = field(default=None, repr=False)
    rq_serializer: str = "pickle"
    artifacts_url: str | None = field(default=None, repr=False)
    timing: Timing = field(default_factory=lambda: choose(60.0))
    poll_seconds: float = 2.0
    upkeep_seconds: float = 300.0
    # False where somebody else in this process does the periodic duties: `holdfast up` has a worker.
    duties: bool = True
    metrics: str = "auto"  # who may read /metrics, as the setting of that name
    stop_seconds: float = 30.0  # how long requests under way may take after a stop signal
    limits: Limits = field(default_factory=Limits)
    threads: Threads = field(default_factory=Threads)
