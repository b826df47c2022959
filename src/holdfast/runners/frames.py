"""What supervisor and runner say to each other: one JSON object a line, over a socket pair.

Two words are said for every job, and have a short form beside the JSON one: `s <id>` is `started`, and `d <id> <ms>
<max_rss_kb> <cpu_ms>` is `done` with nothing but success and these figures (`-` where one is not known).

A job is named by its attempt id, `"<job id>.<attempt>"`: a job that comes back to the same worker is another one.

supervisor → runner
  run       {jobs: [job…], artifacts}      queue these; a job has the fields of `_job` below;
                                           `artifacts` says where they may save files (this database's part of that
                                           place), or is null
  cancel    {id, reason}                   stop this one: an async task is cancelled, a command gets TERM and then KILL,
                                           a function finds `ctx.cancelled` (or `ctx.lease_lost`) true
  lease_lost {id}                          only tell this one: it said that it goes on without a lease
  answer    {id, number, value}            to an ask of this number; or {id, number, error} as in `domain/asks.py`
  give_back {draining}                     answer `returned` with every queued job that has not started; `draining` says
                                           that the worker stops: who waits for its turn in a source is snoozed
  stop      {}                             take no more; when what has started is done, exit 0

runner → supervisor
  ready     {tasks: [TaskInfo…], schedules: {name: Declaration…}, sources: {name: limits…}, database, artifacts}
                                           the app is imported; `database` and `artifacts` are what `App(…)` names, or
                                           null
  broken    {error, stack}                 it cannot be imported; the runner exits
  started   {id}
  done      {id, outcome, usage}           `domain/wire.py`, but `duration_ms` with its fractions; the outcome
                                           `{"kind": "completed_in"}` says that the task finished the job in a
                                           transaction of its own, which may have rolled back; then `otherwise` is the
                                           outcome that counts if it has
  progress  {id, value}
  log       {id, lines: [LogLine as JSON…]}
  completing {id}                          `ctx.complete_in` was called: the job's row is locked by the task itself
  saving    {id, name}                     what was saved under this name is about to be replaced: forget it
  looked    {id, looks}                    right before `done`: {source: [hits, misses]} in the caches of sources
  saved     {id, artifact}                 a file is written; it is recorded with the outcome, whatever that is
  ask       {id, number, verb, body}       the job wants something of the store, and waits for `answer`; its asks are
                                           answered in their order. The verbs are in `domain/asks.py`
  returned  {ids}
"""

from __future__ import annotations

import json
import json.encoder
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from holdfast.domain.outcome import Succeeded
from holdfast.domain.wire import outcome_to_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.domain.job import Claimed

Frame = dict[str, Any]

# The URL that was given as a flag to the worker travels in the environment: an argument would show it to everybody.
DATABASE_FLAG = "HOLDFAST_RUNNER_DATABASE"
ARTIFACTS_FLAG = "HOLDFAST_RUNNER_ARTIFACTS"
# The settings of these names, so that jobs enqueue the way their worker claims.
CONTROL_PLANE, TOKEN = "HOLDFAST_CONTROL_PLANE", "HOLDFAST_TOKEN"
# Set where the worker has no database: a job cannot be finished in a transaction there.
OVER_HTTP = "HOLDFAST_RUNNER_OVER_HTTP"
# Who claims for this runner; and, where that process makes the spans of attempts itself, that it does.
WORKER, TRACED = "HOLDFAST_RUNNER_WORKER", "HOLDFAST_RUNNER_TRACED"

COMPLETED_IN = {"kind": "completed_in"}
NOTHING = outcome_to_json(Succeeded())  # how most jobs end


# Made once: `json.dumps` with separators makes an encoder on every call. Surrogates that some user's text holds travel
# as escapes.
_encode = json.JSONEncoder(separators=(",", ":")).encode
_text = json.encoder.encode_basestring_ascii


def encode(kind: str, **fields: Any) -> bytes:
    return _encode({"t": kind, **fields}).encode() + b"\n"


class Decoder:
    """Bytes in, frames out; keeps the unfinished line."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self.is_broken = False  # something came that is no frame; nothing is read after it

    def feed(self, data: bytes) -> list[Frame]:
        if self.is_broken:
            return []
        head, newline, tail = data.rpartition(b"\n")
        if not newline:
            self._rest.append(data)
            return []
        complete = b"".join([*self._rest, head])
        self._rest = [tail] if tail else []
        found: list[Frame] = []
        for line in complete.split(b"\n"):
            frame = _read(line)
            if frame is None:
                self.is_broken = True
                break
            found.append(frame)
        return found


def _read(line: bytes) -> Frame | None:
    try:
        if line.startswith(b"d "):
            return _read_done(*line.decode().split(" ")[1:])
        if line.startswith(b"s "):
            return {"t": "started", "id": line[2:].decode()}
        frame = json.loads(line)
    except (ValueError, TypeError, RecursionError):
        return None
    return frame if isinstance(frame, dict) else None


def started(attempt_id: str) -> bytes:
    return f"s {attempt_id}\n".encode()


def succeeded(attempt_id: str, usage: Mapping[str, float]) -> bytes:
    """`done`, of a job that came to nothing but its end."""
    figures = f"{usage['duration_ms']:.3f} {usage.get('max_rss_kb', '-')} {usage.get('cpu_ms', '-')}"
    return f"d {attempt_id} {figures}\n".encode()


def _read_done(attempt_id: str, duration: str, rss: str, cpu: str) -> Frame:
    usage = {
        "duration_ms": float(duration),
        "max_rss_kb": None if rss == "-" else int(rss),
        "cpu_ms": None if cpu == "-" else int(cpu),
    }
    return {"t": "done", "id": attempt_id, "outcome": NOTHING, "usage": usage}


def run(jobs: Sequence[Claimed], artifacts: str | None) -> bytes:
    """The `run` frame. Payloads go in as they are stored, unless they span lines."""
    told = ",".join([_job(job) for job in jobs])
    return f'{{"t":"run","jobs":[{told}],"artifacts":{_encode(artifacts)}}}\n'.encode()


def _job(job: Claimed) -> str:
    """Put together by hand: what many jobs have in common is encoded once."""
    payload = job.payload_json
    if "\n" in payload or "\r" in payload:  # somebody typed it by hand
        payload = _encode(job.payload)
    common = _common(job.task, job.task_version, job.queue, job.source, job.timeout_seconds, job.lease_seconds)
    traceparent = "null" if job.traceparent is None else _text(job.traceparent)
    due = "null" if job.due_seconds is None else repr(job.due_seconds)
    return (
        f'{{"id":{_text(job.attempt_id)},"job_id":{_text(job.job_id)},"attempt":{job.attempt},'
        f'"token":{_text(job.lease_token)},"traceparent":{traceparent},{common},"due":{due},"payload":{payload}}}'
    )


@lru_cache(1_000)
def _common(task: str, version: str | None, queue: str, source: str | None, timeout: float | None, lease: float) -> str:
    fields = {"task": task, "version": version, "queue": queue, "source": source, "timeout": timeout, "lease": lease}
    return _encode(fields)[1:-1]
