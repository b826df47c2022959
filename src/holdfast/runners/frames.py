"""What supervisor and runner say to each other: one JSON object a line, over a socket pair.

A job is named by its attempt id, `"<job id>.<attempt>"`: a job that comes back to the same worker is another one.

supervisor → runner
  run       {jobs: [job…], artifacts}      queue these; a job has the fields of `job_to_json` below; `artifacts` says
                                           where they may save files (this database's part of that place), or is null
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
  done      {id, outcome, usage}           `domain/wire.py`; the outcome `{"kind": "completed_in"}` says that the task
                                           finished the job in a transaction of its own, which may have rolled back;
                                           then `otherwise` is the outcome that counts if it has
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
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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


def encode(kind: str, **fields: Any) -> bytes:
    # Surrogates that some user's text holds travel as escapes; the line is pure ASCII.
    return json.dumps({"t": kind, **fields}, separators=(",", ":")).encode() + b"\n"


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
            try:
                frame = json.loads(line)
            except (ValueError, RecursionError):
                frame = None
            if not isinstance(frame, dict):
                self.is_broken = True
                break
            found.append(frame)
        return found


def job_to_json(job: Claimed) -> dict[str, Any]:
    return {
        "id": job.attempt_id,
        "job_id": job.job_id,
        "attempt": job.attempt,
        "token": job.lease_token,
        "task": job.task,
        "version": job.task_version,
        "queue": job.queue,
        "source": job.source,
        "payload": job.payload,
        "timeout": job.timeout_seconds,
        "lease": job.lease_seconds,
        "traceparent": job.traceparent,
        "due": job.due_seconds,
    }
