"""Histories in memory, as the triggers would have written them, for the tests of the checker."""

from collections.abc import Callable

from holdfast.domain.history import EventFacts, History, RowFacts
from holdfast.domain.lifecycle import MOVES, TERMINAL, Charge, Move, State

JOB = "00000000-0000-7000-8000-000000000001"

CRASH = '{"reason": "worker_lost"}'
FAILURE = '{"error": {"code": "boom"}, "reason": "max_attempts"}'
MANUAL = '{"manual": true}'


def moment(number: int) -> str:
    return f"2024-01-01T00:{number // 60:02d}:{number % 60:02d}.000000Z"


class Life:
    """One job: each step is an event of the lifecycle from wherever the job is."""

    def __init__(self, *steps: str | Move, job_id: str = JOB) -> None:
        self.job_id = job_id
        self.events: list[EventFacts] = []
        self.state: str | None = None
        self.attempt = self.failures = self.crashes = 0
        self.row: RowFacts | None = None
        for step in ("enqueued", *steps):
            self.step(step)

    def step(self, step: str | Move, detail: str | None = None, *, crash: bool = False) -> "Life":
        move = step if isinstance(step, Move) else self._move(step)
        if move.charge is Charge.FAILURE_OR_CRASH and detail is None:
            detail = CRASH if crash else FAILURE
        self._charge(move.charge, crash=crash)
        seq = len(self.events) + 1
        held = State.RUNNING in (move.source, move.target)
        self.events.append(
            EventFacts(
                self.job_id,
                seq,
                moment(seq),
                str(move.event),
                None if move.source is None else str(move.source),
                None if move.target is None else str(move.target),
                self.attempt,
                f"worker-{self.attempt}" if held else None,
                f"lease-{self.attempt}" if held else None,
                detail,
            )
        )
        self.state = move.target
        self.row = None if move.target is None else self._row(move.target)
        return self

    def _move(self, name: str) -> Move:
        return next(move for move in MOVES if move.event == name and move.source == self.state)

    def _charge(self, charge: Charge, *, crash: bool) -> None:
        if charge is Charge.ATTEMPT:
            self.attempt += 1
        elif charge is Charge.RESET:
            self.failures = self.crashes = 0
        elif charge is Charge.CRASH or (charge is Charge.FAILURE_OR_CRASH and crash):
            self.crashes += 1
        elif charge in (Charge.FAILURE, Charge.FAILURE_OR_CRASH):
            self.failures += 1

    def _row(self, state: State) -> RowFacts:
        last = self.events[-1]
        running = state is State.RUNNING
        return RowFacts(
            job_id=self.job_id,
            state=str(state),
            seq=last.seq,
            transition=last.event,
            attempt=self.attempt,
            failures=self.failures,
            crashes=self.crashes,
            lease_owner=last.worker if running else None,
            lease_token=last.lease if running else None,
            has_expiry=running,
            is_finished=state in TERMINAL,
            updated_at=last.at,
        )

    @property
    def history(self) -> History:
        return History(self.job_id, self.row, iter(self.events))


Damage = Callable[[Life], None]


def event_damage(number: int, **changes: object) -> Damage:
    """Change columns of one audit row, counted from 1."""

    def damage(life: Life) -> None:
        life.events[number - 1] = EventFacts(**{**life.events[number - 1]._asdict(), **changes})

    return damage


def row_damage(**changes: object) -> Damage:
    """Change columns of the job's row."""

    def damage(life: Life) -> None:
        assert life.row is not None
        life.row = RowFacts(**{**life.row._asdict(), **changes})

    return damage


def lost_event(seq: int) -> Damage:
    def damage(life: Life) -> None:
        life.events = [event for event in life.events if event.seq != seq]

    return damage


def extra_event(event: str, source: str | None, target: str | None, **changes: object) -> Damage:
    """Append an audit row that the job's row knows nothing of."""

    def damage(life: Life) -> None:
        last = life.events[-1]
        added = last._replace(seq=last.seq + 1, at=moment(last.seq + 1), event=event)
        added = added._replace(from_state=source, to_state=target)
        life.events.append(EventFacts(**{**added._asdict(), **changes}))

    return damage


def without_row(life: Life) -> None:
    life.row = None


def without_history(life: Life) -> None:
    life.events = []
