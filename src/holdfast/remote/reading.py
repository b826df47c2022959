"""What clients and operators ask, over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from holdfast.domain.answers import Operated, OperatorAnswer
from holdfast.domain.artifacts import Artifact
from holdfast.domain.caching import check_place
from holdfast.domain.errors import InvalidInput, NotFound
from holdfast.domain.job import Attempt, AuditEvent, Enqueued, Job
from holdfast.domain.jsonable import from_json, to_json
from holdfast.domain.lifecycle import State
from holdfast.domain.logs import LogLine
from holdfast.domain.manifest import TaskInfo
from holdfast.domain.names import check_id, check_integer, check_name
from holdfast.domain.record import Record, check_key
from holdfast.domain.sources import check_limits
from holdfast.domain.views import Page, QueueView, Refusal, SourceEvent, SourceView, Stuck, WorkerView
from holdfast.remote.line import Line
from holdfast.remote.refusals import WrongState

API = "/api/v1"
PAGE = 1_000
MOST_LINES = 10_000

Thing = TypeVar("Thing")

# Of a job in a summary: whoever wants these asks for the job.
_LEFT_OUT: dict[str, Any] = {
    "payload": {},
    "retry": None,
    "progress": None,
    "result": None,
    "last_error": None,
    "webhook": None,
}


class Reading:
    _line: Line

    def job(self, job_id: str) -> Job:
        return from_json(Job, self._line.get(_job(job_id)))

    def jobs(
        self,
        *,
        states: Sequence[State] = (),
        queue: str | None = None,
        task: str | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Page[Job]:
        state = [_state(state) for state in states] or None
        for field, name in (("queue", queue), ("task", task)):
            if name is not None:
                check_name(name, field)
        found = self._line.get(f"{API}/jobs", state=state, queue=queue, task=task, limit=limit, after=after)
        return Page(tuple(self._listed(job) for job in found["jobs"]), found["after"])

    def events(self, job_id: str) -> list[AuditEvent]:
        # Its digest of a token is the engine's own, and leaves the store with nobody.
        found = _or_nothing(lambda: list(self._paged(f"{_job(job_id)}/events", "events")))
        return [from_json(AuditEvent, {"lease": None, **event}) for event in found]

    def attempts(self, job_id: str) -> list[Attempt]:
        return _all(Attempt, _or_nothing(lambda: self._line.get(f"{_job(job_id)}/attempts")["attempts"]))

    def refusals(self, job_id: str | None = None) -> list[Refusal]:
        job = None if job_id is None else check_id(job_id, "job_id")
        return _all(Refusal, _or_nothing(lambda: self._line.get(f"{API}/refusals", job=job)["refusals"]))

    def artifacts(self, job_id: str) -> list[Artifact]:
        found = _or_nothing(lambda: self._line.get(f"{_job(job_id)}/artifacts")["artifacts"])
        return [from_json(Artifact, {"job_id": job_id, **artifact}) for artifact in found]

    def logs(
        self, job_id: str, attempt: int | None = None, after: tuple[int, int] | None = None, limit: int = 1000
    ) -> list[LogLine]:
        place = None if after is None else f"{after[0]}.{after[1]}"
        wanted = min(check_integer(limit, "limit", 1, MOST_LINES), PAGE)
        path = f"{_job(job_id)}/logs"
        found = _or_nothing(lambda: self._line.get(path, attempt=attempt, after=place, limit=wanted)["lines"])
        return [LogLine.from_json({"job_id": job_id, **line}) for line in found]

    def last_logs(self, job_id: str, limit: int = 300) -> list[LogLine]:
        lines = [LogLine.from_json({"job_id": job_id, **line}) for line in self._paged(f"{_job(job_id)}/logs", "lines")]
        return lines[-limit:]

    def count_logs(self, job_id: str) -> int:
        return sum(1 for _line in self._paged(f"{_job(job_id)}/logs", "lines"))

    def queues(self) -> list[QueueView]:
        return _all(QueueView, self._line.get(f"{API}/queues")["queues"])

    def sources(self) -> list[SourceView]:
        return _all(SourceView, self._line.get(f"{API}/sources")["sources"])

    def source(self, name: str) -> SourceView:
        return from_json(SourceView, self._line.get(_source(name)))

    def source_events(self, source: str | None = None, limit: int = 50, after: str | None = None) -> Page[SourceEvent]:
        if source is None:
            raise InvalidInput("source", "must be named: over HTTP the events of one source are listed")
        found = self._line.get(f"{_source(source)}/events", limit=limit, after=after)
        return Page(tuple(_all(SourceEvent, found["events"])), found["after"])

    def workers(self) -> list[WorkerView]:
        return _all(WorkerView, self._line.get(f"{API}/workers")["workers"])

    def stuck(self, limit: int = 50) -> list[Stuck]:
        found = self._line.get(f"{API}/stuck", limit=limit)["stuck"]
        return [from_json(Stuck, {**stuck, "job": {**_LEFT_OUT, **stuck["job"]}}) for stuck in found]

    def announced_tasks(self) -> list[TaskInfo]:
        return [TaskInfo.from_json(task) for task in self._line.get(f"{API}/tasks")["tasks"]]

    def announced(self, name: str) -> TaskInfo | None:
        return next((task for task in self.announced_tasks() if task.name == name), None)

    def records(
        self,
        *,
        scope: str | None = None,
        source: str | None = None,
        job_id: str | None = None,
        dedupe_key: str | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Page[Record]:
        if source == "":
            raise InvalidInput("source", "an empty one cannot be asked for over HTTP; ask for dedupe_key='single'")
        named = _record_filters(scope, source, dedupe_key)
        found = self._line.get(f"{API}/records", **named, job_id=job_id, limit=limit, after=after)
        return Page(tuple(_all(Record, found["records"])), found["after"])

    def record(self, record_id: str) -> Record:
        return from_json(Record, self._line.get(f"{API}/records/{check_id(record_id, 'record_id')}"))

    # verbs

    def delete_records(self, scope: str, source: str | None = None, dedupe_key: str | None = None) -> int:
        check_name(scope, "scope")
        named = urlencode(_record_filters(scope, source, dedupe_key))
        return int(self._line.delete(f"{API}/records?{named}")["deleted"])

    def cancel(self, job_ids: Sequence[str]) -> list[OperatorAnswer]:
        return self._operate_all(job_ids, "cancel")

    def requeue(self, job_ids: Sequence[str]) -> list[OperatorAnswer]:
        return self._operate_all(job_ids, "requeue")

    def replay(self, job_id: str, new_id: str | None = None) -> Enqueued:
        wanted = "" if new_id is None else f"?id={check_id(new_id)}"
        answer = self._line.post(f"{_job(job_id)}/replay{wanted}", once=new_id is None)
        return Enqueued(answer["id"], answer["created"], State(answer["state"]))

    def replays(self, job_id: str) -> list[Job]:
        found = _or_nothing(lambda: self._line.get(f"{_job(job_id)}/replays")["replays"])
        jobs = []
        for replay in found:
            with suppress(NotFound):  # pruned meanwhile
                jobs.append(self.job(replay["id"]))
        return jobs

    def pause_queue(self, name: str) -> None:
        self._line.post(f"{_queue(name)}/pause")

    def resume_queue(self, name: str) -> None:
        self._line.post(f"{_queue(name)}/resume")

    def limit_queue(self, name: str, max_running: int | None) -> None:
        self._line.put(f"{_queue(name)}/limit", {"max_running": max_running})

    def set_source(self, name: str, **limits: Any) -> SourceView:
        return from_json(SourceView, self._line.put(_source(name), to_json(check_limits(limits))))

    def resume_source(self, name: str) -> SourceView:
        return from_json(SourceView, self._line.post(f"{_source(name)}/resume"))

    def clear_cache(self, source: str, key: str | None = None) -> int:
        if key is not None:
            check_place(source, key)
        wanted = "" if key is None else f"?{urlencode({'key': key})}"
        return int(self._line.delete(f"{_source(source)}/cache{wanted}")["cleared"])

    def run_schedule_now(self, name: str) -> Enqueued:
        answer = self._line.post(f"{API}/schedules/{_quoted(name)}/run", once=True)
        return Enqueued(answer["id"], answer["created"], State(answer["state"]))

    def _operate_all(self, job_ids: Sequence[str], verb: str) -> list[OperatorAnswer]:
        """The older first: where two want one key, it is the one that gets it."""
        ids = [check_id(job_id, "job_id") for job_id in job_ids]
        answers = {job_id: self._operate(job_id, verb) for job_id in sorted(set(ids))}
        return [answers[job_id] for job_id in ids]

    def _operate(self, job_id: str, verb: str) -> OperatorAnswer:
        try:
            answer = self._line.post(f"{_job(job_id)}/{verb}", once=True)
        except NotFound:
            return OperatorAnswer(job_id, Operated.NOT_FOUND)
        except WrongState as refused:
            return OperatorAnswer(
                job_id, Operated.KEY_TAKEN if refused.key_taken else Operated.WRONG_STATE, refused.state
            )
        return OperatorAnswer(job_id, Operated(answer["did"]), State(answer["state"]))

    def _listed(self, value: dict[str, Any]) -> Job:
        """A list leaves out what is large."""
        return self.job(value["id"]) if value["omitted"] else from_json(Job, value)

    def _paged(self, path: str, name: str) -> Iterator[dict[str, Any]]:
        after: Any = None
        while True:
            found = self._line.get(path, after=after, limit=PAGE)
            yield from found[name]
            after = found["after"]
            if after is None:
                return


def _or_nothing(ask: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Of a job that is not there, or no longer, there is nothing to tell."""
    try:
        return ask()
    except NotFound:
        return []


def _record_filters(scope: str | None, source: str | None, dedupe_key: str | None) -> dict[str, str]:
    """Those that are named."""
    named = {"scope": scope, "source": source, "dedupe_key": dedupe_key}
    given = {name: value for name, value in named.items() if value is not None}
    for name, value in given.items():
        if name == "dedupe_key":
            check_key(value)
        elif (name, value) != ("source", ""):  # that of the records of `upsert_single`
            check_name(value, name)
    return given


def _all(kind: type[Thing], values: Sequence[dict[str, Any]]) -> list[Thing]:
    return [from_json(kind, value) for value in values]


def _job(job_id: str) -> str:
    return f"{API}/jobs/{check_id(job_id, 'job_id')}"


def _queue(name: str) -> str:
    return f"{API}/queues/{_quoted(name)}"


def _source(name: str) -> str:
    return f"{API}/sources/{_quoted(name)}"


def _quoted(name: str) -> str:
    """In a path `.` and `..` would be steps."""
    quoted = quote(check_name(name, "name"), safe="")
    return quoted if quoted.strip(".") else quoted.replace(".", "%2E")


def _state(value: str) -> str:
    if value not in set(State):
        raise InvalidInput("states", f"must be some of {', '.join(State)}, got {value!r}")
    return str(State(value))
