"""A client program that forks, run as `python -m tests.forks.program <scenario>,… <store> [<token>]`.

It prints one JSON list: the problems that its processes had. A child writes its problems to a pipe, so that the list
contains those of a child that is killed afterwards, and says when a child does not end.
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from holdfast import App
from holdfast.domain.errors import InvalidInput, StoreUnavailable
from holdfast.domain.job import NewJob
from holdfast.stores.statements.words import Statement

DEADLINE_SECONDS = 120.0
JOBS = 20
THREADS = 3
FORK = multiprocessing.get_context("fork")
SESSION = Statement("test.session", lambda _words: "SELECT pg_backend_pid()")

Problems = list[str]
_store, *_token = sys.argv[2:] or [""]
app = App(_store, token=_token[0] if _token else None)
_is_sql = not _token
READS = 40 if _is_sql else 10  # a request takes many times as long as a query


def enqueue(count: int) -> list[str]:
    return [answer.id for answer in app.store.enqueue_many([NewJob(task="noop") for _ in range(count)])]


def read(job_id: str) -> Problems:
    try:
        found = app.store.job(job_id).id
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]
    return [] if found == job_id else ["another job's row"]


def read_many(ids: list[str], times: int = READS) -> Problems:
    return [problem for turn in range(times) for problem in read(ids[turn % len(ids)])]


def in_threads(act: Callable[[], Problems], count: int = THREADS) -> Problems:
    problems: Problems = []
    threads = [threading.Thread(target=lambda: problems.extend(act())) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return problems


def open_connections() -> None:
    """More than one thread needs, so that a child inherits idle ones."""
    database = getattr(app.store, "database", None) if _is_sql else None
    if database is None:
        in_threads(lambda: read_many(enqueue(1), THREADS), THREADS + 2)
        return
    with ExitStack() as held:
        for _ in range(THREADS + 2):
            held.enter_context(database.reading())


def leave_at_once() -> NoReturn:
    os._exit(0)


def leave_normally() -> NoReturn:
    """Run exit handlers and finalizers."""
    sys.exit(0)


def leave_silently() -> NoReturn:
    """Unwind, without a message when that fails."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    sys.exit(0)


def be_killed() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL did not end the process")


LEAVING = {"at_once": leave_at_once, "normally": leave_normally, "killed": be_killed}


class Child:
    """A forked process that runs `act` and then leaves."""

    def __init__(
        self, act: Callable[[], Problems], leave: Callable[[], NoReturn], fork: Callable[[], int] = os.fork
    ) -> None:
        self._said, saying = os.pipe()
        self.pid = fork()
        if self.pid == 0:
            os.close(self._said)
            try:
                problems = act()
            except Exception as error:
                problems = [f"{type(error).__name__}: {error}"]
            with os.fdopen(saying, "w") as pipe:
                json.dump(problems, pipe)
            leave()
        os.close(saying)

    def problems(self) -> Problems:
        """Wait for its end."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while os.waitpid(self.pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                os.close(self._said)
                return ["the child hangs"]
            time.sleep(0.005)
        with os.fdopen(self._said) as pipe:
            said = pipe.read()
        return list(json.loads(said)) if said else ["the child died"]


@contextmanager
def calling(act: Callable[[], Problems]) -> Iterator[Problems]:
    """Threads that make calls for as long as the block lasts."""
    ended = threading.Event()
    problems: Problems = []

    def work() -> None:
        while not ended.is_set():
            problems.extend(act())

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    try:
        yield problems
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def fork_in_c() -> int:
    """As uWSGI does: no handler of Python runs. Another thread that waits for the GIL would lock it in the child."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while threading.active_count() > 1:
        assert time.monotonic() < deadline, threading.enumerate()
        time.sleep(0.005)
    return int(ctypes.PyDLL(None).fork())


def enqueue_and_close(count: int) -> list[str]:
    """With an app of its own, whose threads have ended."""
    with closing(App(_store, token=_token[0] if _token else None)) as other:
        return [answer.id for answer in other.store.enqueue_many([NewJob(task="noop") for _ in range(count)])]


def read_after_fork(leave: Callable[[], NoReturn], fork: Callable[[], int] = os.fork) -> Problems:
    ids = enqueue(JOBS) if fork is os.fork else enqueue_and_close(JOBS)
    open_connections()
    start = FORK.Barrier(3)

    def read_together() -> Problems:
        start.wait(DEADLINE_SECONDS)
        return in_threads(lambda: read_many(ids))

    children = [Child(read_together, leave, fork) for _ in range(2)]
    problems = read_together()
    for child in children:
        problems += child.problems()
    return problems + in_threads(lambda: read_many(ids))


def refuse_after_fork_in_c() -> Problems:
    """SQLite cannot open a file beside an inherited connection, and this fork closed none."""
    ids = enqueue_and_close(JOBS)
    app.store.job(ids[0])

    def expect_refusal() -> Problems:
        try:
            app.store.job(ids[0])
        except StoreUnavailable as error:
            return [] if "lazy-apps" in str(error) else [str(error)]
        return ["the child used the file"]

    return Child(expect_refusal, leave_at_once, fork_in_c).problems() + read_many(ids)


def fork_during_calls() -> Problems:
    """Other threads are in the middle of reads and enqueues whenever this one forks."""
    ids = enqueue(JOBS)
    children: list[Child] = []

    def read_and_enqueue() -> Problems:
        return read_many(ids, 3) + read_many(enqueue(1), 1)

    with calling(read_and_enqueue) as problems:
        for _ in range(6):
            children.append(Child(read_and_enqueue, leave_normally))
            problems += read_and_enqueue()
        for child in children:
            problems += child.problems()
    return problems


def map_in_pool() -> Problems:
    ids = enqueue(JOBS)
    open_connections()
    with calling(lambda: read_many(ids, 5)) as problems, FORK.Pool(3) as pool:
        answers = pool.map_async(read, ids * 5, chunksize=1)
        for problem in answers.get(DEADLINE_SECONDS):
            problems += problem
    return problems


def fork_twice() -> Problems:
    ids = enqueue(JOBS)
    open_connections()

    def fork_again() -> Problems:
        before = read_many(ids)
        grandchild = Child(lambda: in_threads(lambda: read_many(ids)), leave_normally)
        return before + in_threads(lambda: read_many(ids)) + grandchild.problems()

    child = Child(fork_again, leave_normally)
    return in_threads(lambda: read_many(ids)) + child.problems() + read_many(ids)


def session() -> int:
    store: Any = app.store
    with store.database.statement() as transaction:
        return int(transaction.rows(SESSION)[0][0])


def keep_session() -> Problems:
    """Of a Postgres store: neither the child's statements nor its exit reach the parent's session."""
    before = session()

    def act() -> Problems:
        problems = [] if session() != before else ["the child uses the parent's session"]
        app.close()
        return problems

    problems = Child(act, leave_normally).problems()
    return problems if session() == before else [*problems, "the parent lost its session"]


def fork_in_transaction(leave: Callable[[], NoReturn] = leave_at_once) -> Problems:
    """A caller's connection on which a transaction is open belongs to the parent, also when the child leaves the block
    by SystemExit."""
    from sqlalchemy import create_engine

    engine = create_engine(_store)
    with engine.connect() as connection:
        first = app.store.enqueue(NewJob(task="noop"), connection).id

        def enqueue_in_it() -> Problems:
            try:
                app.store.enqueue(NewJob(task="noop"), connection)
            except InvalidInput as error:
                return [] if "forked" in str(error) else [str(error)]
            return ["the parent's transaction was used"]

        problems = Child(enqueue_in_it, leave).problems()
        connection.commit()
    return problems + read(first)


def commit_after_parent() -> Problems:
    """Of an SQLite store: what the child commits is kept, although the parent and a third process close the file."""
    ids = enqueue(1)
    closed, closing_ = os.pipe()

    def commit() -> Problems:
        os.close(closing_)
        problems = read_many(ids, 1)
        os.read(closed, 1)
        with closing(App(_store)) as other:  # of a process whose file this is as well
            other.store.job(ids[0])
        print(json.dumps(enqueue(1)), flush=True)
        return problems

    child = Child(commit, be_killed)
    app.close()
    third = os.posix_spawn(sys.executable, [sys.executable, "-c", _OPEN_AND_CLOSE, _store, ids[0]], os.environ)
    os.waitpid(third, 0)
    os.write(closing_, b"x")
    return child.problems()


_OPEN_AND_CLOSE = """
import sys
from holdfast import App
app = App(sys.argv[1])
app.store.job(sys.argv[2])
app.close()
"""


def hold_locks() -> Problems:
    """Of an SQLite store: the child has its own locks on the file."""
    ids = enqueue(1)
    inherited = _locks()

    def act() -> Problems:
        problems = read_many(ids, 2)
        return problems if _locks() >= inherited > 0 else [*problems, f"{_locks()} locks, of {inherited}"]

    return Child(act, leave_at_once).problems()


def _locks() -> int:
    lines = Path("/proc/locks").read_text().splitlines()
    return sum(int(line.split()[4]) == os.getpid() for line in lines)


SCENARIOS: dict[str, Callable[[], Problems]] = {
    **{f"read_{name}": partial(read_after_fork, leave) for name, leave in LEAVING.items()},
    "read_after_fork_in_c": partial(read_after_fork, leave_at_once, fork_in_c),
    "refuse_after_fork_in_c": refuse_after_fork_in_c,
    "fork_during_calls": fork_during_calls,
    "map_in_pool": map_in_pool,
    "fork_twice": fork_twice,
    "keep_session": keep_session,
    "fork_in_transaction": fork_in_transaction,
    "leave_transaction": partial(fork_in_transaction, leave_silently),
    "commit_after_parent": commit_after_parent,
    "hold_locks": hold_locks,
}

if __name__ == "__main__":
    found = [f"{name}: {problem}" for name in sys.argv[1].split(",") for problem in SCENARIOS[name]()]
    app.close()
    print(json.dumps(found))
