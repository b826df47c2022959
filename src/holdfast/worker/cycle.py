"""The worker's own states, stepped along the table in `domain/worker_states.py`.

connecting   the first time, and after an error, the store is opened; later it is known to be there, and costs nothing
recovering   claims whose answer was lost are given back; duties that are due are done
polling      claim as long as there is room and something to claim
idle         until the wait is over or somebody rings; who came for nothing the last times does not come at once

Heartbeats, reports and limits do not depend on any of this: they go on in every state.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from holdfast.domain.events import Events, StoreFailed, WorkerMoved
from holdfast.domain.worker_states import ERROR_WAIT_SECONDS, WORKER_MOVES, Machine, WorkerState
from holdfast.periodic.desk import Desk, Refusal
from holdfast.periodic.duties import Duties
from holdfast.periodic.part import NEVER
from holdfast.ports import Store
from holdfast.worker.pickup import Found, Pickup

# A job that is told of wakes every idle worker of a fleet, and one of them gets it. The others rest before they heed
# the next word, longer each time they came for nothing.
SHORTEST_REST_SECONDS, LONGEST_REST_SECONDS = 0.005, 0.05
MOMENT_SECONDS = 0.005


class Cycle:
    def __init__(
        self,
        connect: Callable[[], Store],
        pickup: Pickup,
        duties: Duties,
        events: Events,
        ring: Callable[[], None],
        runners_ready: Callable[[], bool],
    ) -> None:
        self._events = events
        self._untold: list[tuple[WorkerState, WorkerState]] = []
        self._machine: Machine[WorkerState] = Machine(WorkerState.STARTING, WORKER_MOVES, self._moved)
        self._connecting: Desk[str, Store] = Desk("connecting", lambda _why: connect(), ring)
        self._pickup = pickup
        self._duties = duties
        self._runners_ready = runners_ready
        self._connected = False
        self._just_connected = False
        self._rung = False
        self._came_when_rung = False
        self._rest = 0.0
        self._heed_at = 0.0
        self._wake_at = NEVER
        self.error: Exception | None = None
        self._steps: dict[WorkerState, Callable[[float], bool]] = {
            WorkerState.STARTING: self._starting,
            WorkerState.CONNECTING: self._connect,
            WorkerState.RECOVERING: self._recover,
            WorkerState.POLLING: self._poll,
            WorkerState.BACKING_OFF: self._back_off,
            WorkerState.IDLE: self._idle,
            WorkerState.ERROR_WAIT: self._wait_after_error,
        }

    @property
    def state(self) -> WorkerState:
        return self._machine.state

    @property
    def connected(self) -> bool:
        return self._connected

    def ring(self) -> None:
        """There may be work: do not wait any longer."""
        self._rung = True

    def step(self, now: float) -> None:
        """Move on until there is something to wait for. What goes wrong here is waited out."""
        try:
            if self.state is not WorkerState.POLLING:
                self._pickup.collect(now)  # of a claim that an error overtook: what it brings has leases that run
            while (advance := self._steps.get(self.state)) is not None and advance(now):
                pass
        except Exception as error:
            self.fail(error, now)

    def tell(self) -> None:
        """Of the moves, one after the other. They are told apart from the steps: nobody who hears of them is in as much
        of a hurry as a job that waits for us."""
        while self._untold:
            self._events.emit(WorkerMoved(*self._untold.pop(0)))

    def fail(self, error: Exception, now: float) -> None:
        self.error = error
        self._connected = False
        self.tell()
        self._events.emit(StoreFailed(str(self.state), str(error) or type(error).__name__))
        if self.state is WorkerState.ERROR_WAIT or WorkerState.ERROR_WAIT not in WORKER_MOVES[self.state]:
            return
        # A little more than the five seconds, each worker its own: they must not all come back in the same moment.
        self._wake_at = now + ERROR_WAIT_SECONDS + random.uniform(0.0, 1.0)
        self._machine.to(WorkerState.ERROR_WAIT)

    def drain(self) -> None:
        self._wake_at = NEVER
        self._machine.to(WorkerState.DRAINING)

    def stop(self) -> None:
        self._machine.to(WorkerState.STOPPED)

    def wake_at(self) -> float:
        return self._wake_at

    def close(self) -> None:
        self._connecting.close()

    # one method a state: True when it moved

    def _starting(self, _now: float) -> bool:
        return self._runners_ready() and self._to(WorkerState.CONNECTING)

    def _connect(self, _now: float) -> bool:
        if self._connected:
            return self._to(WorkerState.RECOVERING)
        if not self._connecting.busy:
            self._connecting.ask("connect")
            return False
        answer = self._connecting.take()
        if isinstance(answer, Refusal):
            raise answer.error
        if answer is None:
            return False
        self._connected, self.error = True, None
        self._duties.run_soon()
        self._just_connected = True
        return self._to(WorkerState.RECOVERING)

    def _recover(self, now: float) -> bool:
        self._duties.step(now)
        if self._duties.pending:
            return False
        if self._duties.error is not None:
            error, self._duties.error = self._duties.error, None
            raise error
        if self._just_connected:  # people are shown that it works, and not for twenty seconds that it is about to
            self._just_connected = False
            self._duties.show_soon()
        return self._to(WorkerState.POLLING)

    def _poll(self, now: float) -> bool:
        self._wake_at = NEVER
        if not self._pickup.busy:  # who rings while a claim is under way may have news that it does not see
            self._rung = False
        match self._pickup.poll(now):
            case Found.NOTHING:
                return self._to(WorkerState.BACKING_OFF)
            case Found.SOME | Found.FEW as found:
                self._rest, self._came_when_rung = 0.0, False
                if found is Found.SOME:
                    return True
                # The runner comes first. Any word of it or of others, or a moment, and the rest is looked for.
                self._wake_at = now + MOMENT_SECONDS
                return False
            case _:
                return False

    def _back_off(self, now: float) -> bool:
        self._wake_at = now + self._pickup.next_wait()
        if self._came_when_rung:
            self._rest = min(LONGEST_REST_SECONDS, max(SHORTEST_REST_SECONDS, 2 * self._rest))
            self._heed_at = now + random.uniform(self._rest / 2, self._rest)
        return self._to(WorkerState.IDLE)

    def _idle(self, now: float) -> bool:
        if self._rung:
            self._wake_at = min(self._wake_at, self._heed_at)
        if now < self._wake_at:
            return False
        self._came_when_rung = self._rung
        return self._to(WorkerState.CONNECTING)

    def _wait_after_error(self, now: float) -> bool:
        return now >= self._wake_at and self._to(WorkerState.CONNECTING)

    def _to(self, target: WorkerState) -> bool:
        if target is not WorkerState.IDLE:
            self._wake_at = NEVER
        self._machine.to(target)
        return True

    def _moved(self, before: WorkerState, after: WorkerState) -> None:
        self._untold.append((before, after))
