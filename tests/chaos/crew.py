"""Real processes that a test sends on an errand all at the same moment.

An errand is a function of some module of the tests; it is called with the number of its process and the arguments
that every process gets. Processes are started once and used by many tests, and are forked from one that has imported
the stores: to start Python and to import SQLAlchemy eight times costs more than most of the tests themselves.
"""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

REPOSITORY = Path(__file__).parents[2]
SIZE = 8
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["holdfast.wiring.sql", "holdfast.stores.postgres", "holdfast.stores.sqlite", "pytest"])

Given = ParamSpec("Given")
Result = TypeVar("Result")


class ErrandFailed(AssertionError):
    """An errand raised; the message holds the traceback of the process it ran in."""


class Member:
    """One process. It ends when its owner closes the line, also when the owner dies."""

    def __init__(self) -> None:
        ours, theirs = Pipe()
        self._line: Connection[Any, Any] = ours
        self._process = SERVER.Process(target=_run_errands, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def prepare(self, errand: Callable[..., Any], arguments: Sequence[Any]) -> None:
        self._line.send((errand, tuple(arguments)))

    def wait_ready(self) -> None:
        self._line.recv()

    def go(self) -> None:
        self._line.send(None)

    def result(self) -> Any:
        succeeded, value = self._line.recv()
        if not succeeded:
            raise ErrandFailed(value)
        return value

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._process.kill()
        self._process.join()
        self._line.close()


def _run_errands(line: Connection[Any, Any]) -> None:
    while True:
        try:
            errand, arguments = line.recv()
        except EOFError:
            return
        line.send("ready")
        line.recv()
        try:
            answer = (True, errand(*arguments))
        except BaseException:
            answer = (False, traceback.format_exc())
        line.send(answer)


class Work(Generic[Result]):
    """An errand under way."""

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = members
        self._results: list[Result] | None = None

    def results(self) -> list[Result]:
        """What each process returned, once all of them have."""
        if self._results is None:
            self._results = _gathered(self._members)
        return self._results


class Crew:
    def __init__(self, size: int = SIZE) -> None:
        self.size = size
        self._members: list[Member] = []

    def run(
        self, errand: Callable[Concatenate[int, Given], Result], *arguments: Given.args, **named: Given.kwargs
    ) -> list[Result]:
        """Every process runs the errand at the same time; what each of them returned."""
        with self.working(errand, *arguments, **named) as work:
            return work.results()

    @contextmanager
    def working(
        self, errand: Callable[Concatenate[int, Given], Result], *arguments: Given.args, **named: Given.kwargs
    ) -> Iterator[Work[Result]]:
        """The same, with the processes at work while the test does something else. It ends when all have returned."""
        assert not named, "errands take their arguments by position"
        members = self._on_duty()
        try:
            for number, member in enumerate(members):
                member.prepare(errand, (number, *arguments))
            for member in members:
                member.wait_ready()
            for member in members:
                member.go()
            work: Work[Result] = Work(members)
            yield work
            work.results()
        except BaseException:
            # Some of them may still be at it: the next test gets new ones.
            self.dismiss()
            raise

    def _on_duty(self) -> list[Member]:
        while len(self._members) < self.size:
            self._members.append(Member())
        return self._members

    def dismiss(self) -> None:
        members, self._members = self._members, []
        for member in members:
            member.kill()


def _gathered(members: Sequence[Member]) -> list[Any]:
    """Wait for all, also when one of them failed: the others may be at the same database."""
    results: list[Any] = []
    failures: list[str] = []
    for member in members:
        try:
            results.append(member.result())
        except ErrandFailed as failure:
            failures.append(str(failure))
    if failures:
        raise ErrandFailed(f"{len(failures)} of {len(members)} processes failed; the first:\n{failures[0]}")
    return results
