"""Simulated runner processes: they speak the real frames over a simulated socket, and run what the seed decides.

A runner is a host of its own: it goes on while its supervisor is stopped, and dies with it when that is killed.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

from holdfast.domain.logs import LogLine, Stream
from holdfast.domain.outcome import Failed, JobError, Outcome, Snoozed, Succeeded
from holdfast.domain.spec import Undecodable
from holdfast.domain.wire import outcome_to_json
from holdfast.runners import frames
from holdfast.runners.endings import ending
from tests.simulation.machine import Computer, Machine, Socket
from tests.simulation.weather import LEASE_SECONDS

IMPORT_SECONDS = 0.3
HELD_SOURCE = "gate"  # what some jobs enter while they run
INVALID_ARGUMENTS = "invalid_arguments"


@dataclass(frozen=True)
class Fate:
    """What becomes of one attempt when nobody interferes: how long it takes, and its outcome, or None for a crash."""

    seconds: float
    outcome: Outcome | None
    heeds_cancel: bool
    chatty: bool
    enters: bool


def fate(random: Random, long: float, is_calm: bool) -> Fate:
    """Mostly short and successful; when faults are over, always one or the other soon."""
    is_long = random.random() < long
    seconds = random.uniform(0.3, 2.5) * LEASE_SECONDS if is_long else random.choice((0.0, 0.05, 0.4, 1.0))
    chance = random.random()
    outcome: Outcome | None = Succeeded({"n": 1})
    if chance < 0.13:
        outcome = Failed(JobError("boom", "failed", retryable=True))
    elif chance < 0.16:
        outcome = Failed(JobError("never", "failed for good", retryable=False))
    elif chance < 0.24:
        outcome = None
    elif chance < 0.29:
        outcome = Snoozed(random.uniform(0.1, 3.0))
    if is_calm:
        seconds = min(seconds, 0.1)
        outcome = Succeeded() if isinstance(outcome, Snoozed) else outcome
    return Fate(seconds, outcome, random.random() < 0.7, random.random() < 0.15, random.random() < 0.15)


@dataclass(eq=False)
class Run:
    """One attempt that a runner has started. `said` is what the runner told of its end: None while it runs, or when it
    never said a word of it."""

    lease_id: str
    job_id: str
    attempt: int
    runner: Process
    began_at: float
    fate: Fate
    ends_at: float
    ended_at: float | None = None
    said: Outcome | None = None
    died_by: str | None = None  # what ended the runner while this one ran
    waits: int | None = None  # the number of an ask that is not answered
    held: int | None = None  # of the entry, while it is inside

    @property
    def id(self) -> str:
        return f"{self.job_id}.{self.attempt}"


@dataclass(frozen=True)
class App:
    """What a runner says that it can run."""

    tasks: list[dict[str, Any]] = field(default_factory=list)
    schedules: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, Any] = field(default_factory=dict)


class Process:
    """What `subprocess.Popen` gives a supervisor, and the program behind it."""

    def __init__(self, town: Town, pid: int, command: Sequence[str], socket: Socket, parent: Computer) -> None:
        self.town = town
        self.world = town.machine.world
        self.pid = pid
        self.parent = parent
        self.returncode: int | None = None
        self.host = Computer(self.world, f"runner-{pid}")
        self._slots = int(command[command.index("--slots") + 1])
        self._socket = socket
        self._decoder = frames.Decoder()
        self._queued: deque[dict[str, Any]] = deque()
        self._runs: dict[str, Run] = {}
        self._asks = count(1)
        self._stopping = False
        self.world.spawn(self.host, "main", self._main)

    # as the supervisor sees it

    def poll(self) -> int | None:
        return self.returncode

    def kill(self) -> None:
        self.die(-signal.SIGKILL, "killed by its supervisor")

    def terminate(self) -> None:
        """Some programs take TERM for what it is, and some go on."""
        if self.world.random.random() < 0.6:
            self.die(-signal.SIGTERM, "TERM of its supervisor")

    def wait(self, seconds: float | None = None) -> None:
        until = self.world.now + (seconds or 0.0)
        while self.returncode is None and self.world.now < until:
            self.world.sleep(0.05)

    # its end

    def die(self, code: int, why: str) -> None:
        if self.returncode is not None:
            return
        self.returncode = code
        self.town.processes.pop(self.pid, None)
        for run in list(self._runs.values()):
            run.died_by = why
            self._over(run)
        self._socket.close()
        if self.parent.alive:
            self.parent.signal(signal.SIGCHLD)
        self.world.kill(self.host)

    # its program

    def _main(self) -> None:
        world = self.world
        world.sleep(world.random.random() * IMPORT_SECONDS)
        app = self.town.app
        self._say("ready", tasks=app.tasks, schedules=app.schedules, sources=app.sources, database=None, artifacts=None)
        while not (self._stopping and not self._runs):
            self._begin()
            due = min((run.ends_at for run in self._runs.values() if run.waits is None), default=None)
            if due is None or due > world.now:
                self._socket.wait(due)
            self._listen()
            self._finish()
        self.die(0, "stopped as it was asked to")

    def _say(self, kind: str, **fields: Any) -> None:
        self._send(frames.encode(kind, **fields))

    def _send(self, data: bytes) -> None:
        try:
            self._socket.send(data)
        except BrokenPipeError:
            self.die(1, "its supervisor does not listen")

    def _listen(self) -> None:
        try:
            data = self._socket.recv(1)
        except BlockingIOError:
            return
        if not data:
            self.die(1, "its supervisor is gone")
        for frame in self._decoder.feed(data):
            self._hear(frame)

    def _hear(self, frame: frames.Frame) -> None:
        match frame["t"]:
            case "run":
                self._queued.extend(frame["jobs"])
            case "cancel":
                self._cancel(frame["id"], frame["reason"])
            case "give_back":
                self._give_back()
            case "stop":
                self._stopping = True
                self._give_back()
            case "answer":
                self._answered(frame)
            case "ping":
                self._say("pong")

    def _give_back(self) -> None:
        ids = [job["id"] for job in self._queued]
        self._queued.clear()
        self._say("returned", ids=ids)

    def _begin(self) -> None:
        while self._queued and len(self._runs) < self._slots and not self._stopping:
            job = self._queued.popleft()
            chosen = fate(self.world.random, self.town.long, self.town.is_calm())
            began = self.world.now
            run = Run(job["id"], job["job_id"], job["attempt"], self, began, chosen, began + chosen.seconds)
            self._runs[run.lease_id] = run
            self.town.began(run)
            self._send(frames.started(run.lease_id))
            if isinstance(payload := job["payload"], Undecodable):
                self._end(run, Failed(JobError(INVALID_ARGUMENTS, f"the payload {payload.reason}", retryable=False)))
                continue
            if chosen.chatty:
                self._say("progress", id=run.lease_id, value={"done": 1})
                line = LogLine(run.job_id, run.attempt, 1, self.town.machine.moment(), Stream.LOG, "hello")
                self._say("log", id=run.lease_id, lines=[line.to_json()])
            if chosen.enters:
                self._ask(run, "enter", {"source": HELD_SOURCE, "number": next(self._asks), "prepaid": False})

    def _ask(self, run: Run, verb: str, body: dict[str, Any]) -> None:
        run.waits = next(self._asks)
        if verb == "enter":
            run.held = body["number"]
        self._say("ask", id=run.lease_id, number=run.waits, verb=verb, body=body)

    def _answered(self, frame: frames.Frame) -> None:
        run = self._runs.get(frame["id"])
        if run is None or run.waits != frame["number"]:
            return
        run.waits = None
        value = frame.get("value")
        if isinstance(value, dict) and value.get("admitted") is False:
            run.held = None
            self._end(run, Snoozed(max(0.1, min(5.0, value["retry_in"])), "the gate is shut"))
        elif "error" in frame:
            run.held = None

    def _finish(self) -> None:
        for run in list(self._runs.values()):
            if run.ends_at > self.world.now or run.waits is not None:
                continue
            if run.held is not None:
                number, run.held = run.held, None
                self._ask(run, "leave", {"source": HELD_SOURCE, "number": number, "end": "succeeded"})
            elif run.fate.outcome is None:
                self.die(*self.world.random.choice(((-signal.SIGSEGV, "its own fault"), (1, "its own exit"))))
            else:
                self._end(run, run.fate.outcome)

    def _cancel(self, lease_id: str, reason: str) -> None:
        """What is queued is stopped before it starts; of what runs, some code looks whether it should stop."""
        for job in [job for job in self._queued if job["id"] == lease_id]:
            self._queued.remove(job)
            self._say("done", id=lease_id, outcome=outcome_to_json(ending(reason, job["timeout"])), usage={})
        run = self._runs.get(lease_id)
        if run is not None and run.fate.heeds_cancel:
            self._end(run, ending(reason, 1.0))

    def _end(self, run: Run, outcome: Outcome) -> None:
        run.said = outcome
        self._over(run)
        usage = {"duration_ms": (self.world.now - run.began_at) * 1000.0}
        if outcome == Succeeded():
            self._send(frames.succeeded(run.lease_id, usage))
        else:
            self._say("done", id=run.lease_id, outcome=outcome_to_json(outcome), usage=usage)

    def _over(self, run: Run) -> None:
        self._runs.pop(run.lease_id, None)
        run.ended_at = self.world.now
        self.town.ended(run)


class Town:
    """Every runner there is, and what they run."""

    def __init__(self, machine: Machine, app: App, long: float, is_calm: Callable[[], bool]) -> None:
        self.machine = machine
        self.app = app
        self.long = long  # the share of jobs that are
        self.is_calm = is_calm
        self.processes: dict[int, Process] = {}
        self.live: dict[str, Run] = {}
        self.runs: list[Run] = []
        self._pids = count(1001)
        machine.launch = self._launch

    def _launch(self, command: Sequence[str], socket: Socket, parent: Computer) -> Process:
        process = Process(self, next(self._pids), command, socket, parent)
        self.processes[process.pid] = process
        return process

    def began(self, run: Run) -> None:
        self.runs.append(run)
        self.live[f"{run.runner.pid} {run.lease_id}"] = run
        self.machine.world.say(f"begins {short(run.id)}: {run.fate.outcome} after {run.fate.seconds:.1f} s")

    def ended(self, run: Run) -> None:
        self.live.pop(f"{run.runner.pid} {run.lease_id}", None)
        self.machine.world.say(f"ends {short(run.id)}: {run.said or run.died_by}", run.runner.host)

    def orphaned(self, parent: Computer) -> None:
        """The parent-death signal."""
        for process in list(self.processes.values()):
            if process.parent is parent:
                process.die(-signal.SIGKILL, "the death of its supervisor")


def short(attempt_id: str) -> str:
    """The end of an id tells it from the others of a history."""
    job_id, dot, attempt = attempt_id.partition(".")
    return f"{job_id[-4:]}{dot}{attempt}"


__all__ = ["App", "Process", "Run", "Town", "short"]
