"""What supervisor and runner say to each other: one JSON object a line, over a socket pair.

Two words are said for every job, and have a short form beside the JSON one: `s <id>` is `started`, and `d <id> <ms>
<max_rss_kb> <cpu_ms>` is `done` with nothing but success and these figures (`-` where one is not known).

An execution is named by its lease id (`Claimed.lease_id`): a job that comes back to the same worker, even with the same
attempt number, is another execution.

Payloads are lines of their own, `p <payload>`, in the order of the jobs of the `run` that follows. So a payload that
cannot be decoded spoils nothing but itself.

supervisor → runner
  run       {jobs: [job…], artifacts}      queue these; a job has the fields of `_job` below, and its payload;
                                           `artifacts` says where they may save files (this database's part of that
                                           place), or is null
  cancel    {id, reason}                   stop this one: an async task is cancelled, a command gets TERM and then KILL,
                                           a function finds `ctx.cancelled` (or `ctx.lease_lost`) true
  lease_lost {id}                          only tell this one: it said that it goes on without a lease
  answer    {id, number, value}            to an ask of this number; or {id, number, error} as in `domain/asks.py`
  give_back {draining}                     answer `returned` with every queued job that has not started; `draining` says
                                           that the worker stops: who waits for its turn in a source is snoozed
  ping      {}                             the reader answers `pong`, whatever jobs do to the event loop
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
  pong      {}
"""

from __future__ import annotations

import json.encoder
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from holdfast.domain.json_codec import make_decoder, make_encoder
from holdfast.domain.outcome import Succeeded
from holdfast.domain.spec import Undecodable, decode_json
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


# Lone surrogates in a user's text are sent as escapes.
_encode = make_encoder(ascii_only=True, allow_nan=True)
_text = json.encoder.encode_basestring_ascii
_decode = make_decoder()


def encode(kind: str, **fields: Any) -> bytes:
    return _encode({"t": kind, **fields}).encode() + b"\n"


class Decoder:
    """Bytes in, frames out; keeps the unfinished line."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._payloads: list[bytes] = []
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
            if line.startswith(b"p "):
                self._payloads.append(line[2:])
                continue
            frame = _read(line)
            if frame is None or (self._payloads and not self._attach(frame)):
                self.is_broken = True
                break
            found.append(frame)
        return found

    def _attach(self, frame: Frame) -> bool:
        """Give the jobs their payloads; False if there are not as many."""
        payloads, self._payloads = self._payloads, []
        jobs = frame.get("jobs", ())
        for job, payload in zip(jobs, payloads, strict=False):
            job["payload"] = decode_json(payload)
        return len(jobs) == len(payloads)


def _read(line: bytes) -> Frame | None:
    try:
        if line.startswith(b"d "):
            return _read_done(*line.decode().split(" ")[1:])
        if line.startswith(b"s "):
            return {"t": "started", "id": line[2:].decode()}
        frame = _decode(line.decode())
    except (ValueError, TypeError, RecursionError):
        return None
    return frame if isinstance(frame, dict) else None


def started(lease_id: str) -> bytes:
    return f"s {lease_id}\n".encode()


def succeeded(lease_id: str, usage: Mapping[str, float]) -> bytes:
    """`done`, of a job that came to nothing but its end."""
    figures = f"{usage['duration_ms']:.3f} {usage.get('max_rss_kb', '-')} {usage.get('cpu_ms', '-')}"
    return f"d {lease_id} {figures}\n".encode()


def _read_done(lease_id: str, duration: str, rss: str, cpu: str) -> Frame:
    usage = {
        "duration_ms": float(duration),
        "max_rss_kb": None if rss == "-" else int(rss),
        "cpu_ms": None if cpu == "-" else int(cpu),
    }
    return {"t": "done", "id": lease_id, "outcome": NOTHING, "usage": usage}


def run(jobs: Sequence[Claimed], artifacts: str | None) -> bytes:
    """The `run` frame, with the payloads before it as they are stored, unless they span lines."""
    payloads = "".join([f"p {_payload(job)}\n" for job in jobs])
    told = ",".join([_job(job) for job in jobs])
    return f'{payloads}{{"t":"run","jobs":[{told}],"artifacts":{_encode(artifacts)}}}\n'.encode()


def _payload(job: Claimed) -> str:
    payload = job.payload_json
    if "\n" not in payload:
        return payload
    value = job.payload  # typed by hand
    # NUL is in no JSON text, so that what cannot be decoded here cannot be decoded there.
    return payload.replace("\n", "\0") if isinstance(value, Undecodable) else _encode(value)


def _job(job: Claimed) -> str:
    """Put together by hand: what many jobs have in common is encoded once."""
    common = _common(job.task, job.task_version, job.queue, job.source, job.timeout_seconds, job.lease_seconds)
    traceparent = "null" if job.traceparent is None else _text(job.traceparent)
    due = "null" if job.due_seconds is None else repr(job.due_seconds)
    return (
        f'{{"id":{_text(job.lease_id)},"job_id":{_text(job.job_id)},"attempt":{job.attempt},'
        f'"token":{_text(job.lease_token)},"traceparent":{traceparent},{common},"due":{due}}}'
    )


@lru_cache(1_000)
def _common(task: str, version: str | None, queue: str, source: str | None, timeout: float | None, lease: float) -> str:
    fields = {"task": task, "version": version, "queue": queue, "source": source, "timeout": timeout, "lease": lease}
    return _encode(fields)[1:-1]
