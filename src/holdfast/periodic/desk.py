"""A desk takes one question at a time to the store, in a thread of its own, and rings when it has the answer.

The supervisor never waits for the store: a claim that hangs holds up no heartbeat and no time limit. Threads are
daemons, because a call that hangs must not keep a stopped worker from ending either.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

Question = TypeVar("Question")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Refusal:
    """The question could not be answered."""

    error: Exception


class Desk(Generic[Question, Answer]):
    def __init__(self, name: str, serve: Callable[[Question], Answer], ring: Callable[[], None]) -> None:
        self.name = name
        self.busy = False
        self._serve = serve
        self._ring = ring
        self._questions: queue.SimpleQueue[Question | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Answer | Refusal] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"holdfast-{name}", daemon=True)
        self._thread.start()

    def ask(self, question: Question) -> None:
        assert not self.busy, f"the {self.name} desk takes one question at a time"
        self.busy = True
        self._questions.put(question)

    @property
    def has_answer(self) -> bool:
        return not self._answers.empty()

    def take(self) -> Answer | Refusal | None:
        """The answer, once: None while there is none."""
        if not self.busy:
            return None
        try:
            answer = self._answers.get_nowait()
        except queue.Empty:
            return None
        self.busy = False
        return answer

    def wait(self, seconds: float) -> None:
        """Until the answer is there, and not longer; for the very end, when nothing else is left to do."""
        if self.busy:
            with contextlib.suppress(queue.Empty):
                self._answers.get(timeout=seconds)
                self.busy = False

    def close(self) -> None:
        self._questions.put(None)

    def _work(self) -> None:
        while (question := self._questions.get()) is not None:
            try:
                answer: Answer | Refusal = self._serve(question)
            except Exception as error:
                answer = Refusal(error)
            self._answers.put(answer)
            self._ring()
