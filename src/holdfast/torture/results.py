"""What a run comes to: the facts of which the terminal, the page and `--json` are views."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault, injected. Times are seconds since the run began."""

    kind: str  # a name of `faults.KINDS`
    target: str  # whom it hit: a member's name, "postgres", "the way to the database", …
    at: float
    until: float  # when it was over; the same moment for a kill
    detail: str = ""
    recovered_seconds: float | None = None  # from `until` (from `at` for a kill) to the moment all was well again
    bound_seconds: float | None = None  # what it must not take longer than; None when there is nothing to recover
    recovered_what: str = ""  # "3 jobs claimed again", "the next claim", …


@dataclass(frozen=True, slots=True)
class Broken:
    """A rule that does not hold, and the shortest history that shows it."""

    rule: str
    detail: str
    job_id: str | None = None
    history: tuple[str, ...] = ()  # lines: the job's events and notes in order of time


@dataclass(frozen=True, slots=True)
class Second:
    """One second of the run, for the timeline."""

    at: int  # since the run began
    accepted: int = 0
    claimed: int = 0
    ended: int = 0
    lost: int = 0  # leases that ran out
    running: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class Life:
    """One process of the crew, from its start to its end, for the lanes of the timeline."""

    name: str  # "worker-database-1"
    door: str  # "database", "http", "redis", "rq", "control plane", "client"
    began: float
    ended: float
    ending: str = ""  # "killed", "terminated", "still there"


@dataclass(frozen=True, slots=True)
class Load:
    seconds: float
    jobs: int
    events: int
    acknowledged: int
    by_state: dict[str, int]
    by_door: dict[str, int]  # who brought jobs to their end
    by_task: dict[str, int]
    attempts: int
    leases_lost: int
    refusals: int
    executions: int
    ticks: int


@dataclass(frozen=True, slots=True)
class Result:
    seed: int
    command: str  # that runs the same again
    store: str  # masked
    dialect: str
    versions: dict[str, str]  # holdfast, python, database, redis
    lease_seconds: float
    began_at: str  # ISO, UTC
    seconds: float  # of faults; the draining after it is not in it
    drained_seconds: float | None  # from the last fault until nothing was left to do; None when it never was
    load: Load
    strikes: tuple[Strike, ...]
    left_out: dict[str, str]  # kind of fault: why it could not be injected here
    broken: tuple[Broken, ...]
    rules_checked: dict[str, int]  # rule: how many things it was held against
    timeline: tuple[Second, ...] = ()
    lives: tuple[Life, ...] = field(default=())

    @property
    def ok(self) -> bool:
        return not self.broken
