"""One word of an operator to many jobs: cancelled, requeued or replayed in batches, beside the page, with progress.

Jobs are taken newest first by their ids, so that what is made meanwhile is not among them and nothing is taken twice.
Each batch is a call of its own: what was done stays done if the server stops, and the page says how far it came.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from holdfast.domain.errors import Conflict, HoldfastError, InvalidInput, NotFound, StoreUnavailable
from holdfast.domain.lifecycle import ACTIVE, State
from holdfast.domain.names import check_id
from holdfast.domain.tokens import Scope
from holdfast.domain.views import Counted, JobFilter
from holdfast.ports import Store
from holdfast.serve.auth import Identity
from holdfast.serve.plane import Plane
from holdfast.serve.problems import Refused

BATCH = 200
MOST_CHOSEN = 1_000
MOST_KEPT = 50
MOST_OF_ONE = 5
# What it is called, what it does to jobs of which states, and what became of them.
VERBS: dict[str, tuple[str, tuple[State, ...], str]] = {
    "cancel": ("Cancel", ACTIVE, "cancelled, or asked to stop"),
    "requeue": ("Requeue", (State.FAILED, State.CANCELLED), "requeued"),
    "replay": ("Replay", tuple(State), "replayed"),
}


@dataclass
class BulkRun:
    """What is asked for, and how far it is. `ids` are chosen by hand; else all that `wanted` says."""

    verb: str
    identity: Identity
    wanted: JobFilter
    ids: tuple[str, ...] | None
    total: Counted
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    changed: int = 0
    unchanged: int = 0
    problem: str = ""
    is_over: bool = False
    is_stopped: bool = False

    @property
    def seen(self) -> int:
        return self.changed + self.unchanged


class BulkRuns:
    """Those of one server, the last few."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._runs: dict[str, BulkRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, run: BulkRun) -> BulkRun:
        under_way = [known for known in self._runs.values() if not known.is_over]
        own = sum(known.identity.id == run.identity.id for known in under_way)
        if own >= MOST_OF_ONE or len(under_way) >= MOST_KEPT:
            raise Refused(503, "Too much at once", f"{own} of yours are under way; wait for one to end")
        for known in list(self._runs.values())[: max(0, len(self._runs) - MOST_KEPT)]:
            if known.is_over:
                del self._runs[known.id]
        self._runs[run.id] = run
        task = asyncio.create_task(self._go(run))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return run

    def known(self, run_id: str, identity: Identity) -> BulkRun:
        run = self._runs.get(run_id)
        if run is None or not (run.identity.id == identity.id or Scope.ADMIN in identity.scopes):
            raise NotFound("there is no such run on this server; it may have been restarted")
        return run

    async def _go(self, run: BulkRun) -> None:
        place: str | None = ""
        try:
            while place is not None:
                if run.is_stopped or self._plane.stopping.is_set():
                    run.problem = "stopped; what was done stays done"
                    return
                if not await self._is_live(run.identity):
                    run.problem = "its token was revoked; what was done stays done"
                    return
                place = await self._step(run, place)
        except (StoreUnavailable, Refused):
            run.problem = "the store does not answer; what was done stays done"
        except HoldfastError as error:
            run.problem = f"{error}; what was done stays done"
        except Exception as error:  # the page must hear of it, too
            run.problem = f"{type(error).__name__}; what was done stays done"
            raise
        finally:
            run.is_over = True

    async def _is_live(self, identity: Identity) -> bool:
        """Whoever was signed out has no hands here any more."""
        standing = (await self._plane.tokens.call(lambda store: store.standings([identity.id]))).get(identity.id)
        return standing is not None and standing.live

    async def _step(self, run: BulkRun, place: str) -> str | None:
        """One batch; where the next one begins, None when there is none."""
        ids, after = await self._plane.reads.call(lambda store: _batch(store, run, place))
        changed = await self._plane.writes.call(lambda store: _apply(store, run.verb, ids)) if ids else 0
        run.changed += changed
        run.unchanged += len(ids) - changed
        return after


def _batch(store: Store, run: BulkRun, place: str) -> tuple[list[str], str | None]:
    if run.ids is None:
        page = store.search(run.wanted, BATCH, place or None)
        return [item.job.id for item in page.items], page.after
    start = int(place or 0)
    chosen = run.ids[start : start + BATCH]
    allowed = [job_id for job_id in chosen if run.identity.may_use(store.queue_of(job_id) or "")]
    return allowed, str(start + BATCH) if start + BATCH < len(run.ids) else None


def _apply(store: Store, verb: str, ids: Sequence[str]) -> int:
    """How many it did something to; the others are in another state by now, or gone."""
    match verb:
        case "cancel":
            return sum(answer.ok for answer in store.cancel(ids))
        case "requeue":
            return sum(answer.ok for answer in store.requeue(ids))
        case _:
            return sum(_replayed(store, job_id) for job_id in ids)


def _replayed(store: Store, job_id: str) -> bool:
    try:
        return store.replay(job_id).created
    except (Conflict, NotFound):
        return False


def begin_run(store: Store, verb: str, identity: Identity, wanted: JobFilter, ids: Sequence[str] | None) -> BulkRun:
    """Counted before it begins; of what is chosen by filter only the states that the verb is for."""
    if ids is not None:
        known = tuple(dict.fromkeys(check_id(job_id, "ids") for job_id in ids))
        return BulkRun(verb, identity, wanted, known, Counted(len(known)))
    states = VERBS[verb][1]
    within = tuple(state for state in states if state in (wanted.states or states))
    if not within:
        raise InvalidInput("state", f"none of these jobs can be {verb}ed: that needs {' or '.join(states)}")
    narrowed = replace(wanted, states=within)
    return BulkRun(verb, identity, narrowed, None, store.count_jobs(narrowed))
