"""What a worker is told at start."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from holdfast.domain.timing import Timing, choose
from holdfast.wiring.redis import StreamOptions

TERM_GRACE_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    app: str
    database_url: str = field(repr=False)  # of the settings; the app may name another
    database_flag: str | None = field(default=None, repr=False)  # overrules both
    artifacts_url: str | None = field(default=None, repr=False)  # as with the database
    artifacts_flag: str | None = field(default=None, repr=False)
    control_plane: str | None = None  # in place of any database, whatever the app and the settings name
    token: str | None = field(default=None, repr=False)
    long_poll_seconds: float = 30.0  # how long a claim may wait at a control plane
    worker_id: str
    queues: tuple[str, ...] | None = None
    processes: int = field(default_factory=lambda: os.cpu_count() or 1)
    slots: int = 1
    async_slots: int = 64
    drain: bool = False
    fail_fast: bool = False
    reload: bool = False
    notify: bool = True
    listen_url: str | None = field(default=None, repr=False)
    timing: Timing = field(default_factory=lambda: choose(60.0))
    poll_seconds: float = 2.0
    grace_seconds: float = 30.0
    rq_url: str | None = field(default=None, repr=False)  # whose queues are offered what has no message there
    rq_serializer: str = "pickle"
    redis: StreamOptions | None = None  # whose streams jobs are taken from
    cache_url: str | None = field(default=None, repr=False)  # of a cache of its own; else the store keeps it
    cache_enabled: bool = True
    cache_ttl_seconds: float = 3600.0
    upkeep_seconds: float = 300.0  # how often it looks whether there is something to retire, and the like
    # Between asking a job to stop (a message, and TERM where it has a process to itself) and KILL.
    term_grace_seconds: float = TERM_GRACE_SECONDS
    recycle_jobs: int | None = None
    recycle_memory: int | None = None  # bytes
    max_memory: int | None = None  # bytes
