"""Handlers of forks: locks, methods and postponed forks."""

import gc
import socket
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import forks
from holdfast.forks import after_fork, before_fork, cut_off, fork_safe, postponed
from tests.forks.child import in_child
from tests.servers.waiting import wait_until


class Handler:
    def __init__(self) -> None:
        self.before = self.after = 0

    def count_before(self) -> None:
        self.before += 1

    def count_after(self) -> None:
        self.after += 1


@pytest.mark.parametrize("kind", [threading.Lock, threading.RLock])
def test_lock_of_another_thread_is_free_in_child(kind: Callable[[], threading.Lock]) -> None:
    lock = fork_safe(kind())
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            over.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    try:
        assert in_child(lambda: lock.acquire(blocking=False))
        assert not lock.acquire(blocking=False), "the parent's lock is held"
    finally:
        over.set()
        holder.join()


def test_lock_of_forking_thread_stays_held_in_child() -> None:
    lock = fork_safe(threading.RLock())

    def release() -> bool:
        lock.release()
        return True

    with lock:
        assert in_child(release)


def test_handlers_run_before_fork_in_parent_and_after_it_in_child() -> None:
    handler = Handler()
    before_fork(handler.count_before)
    after_fork(handler.count_after)
    assert in_child(lambda: (handler.before, handler.after) == (1, 1))
    assert (handler.before, handler.after) == (1, 0)


def test_garbage_collection_during_fork_does_not_keep_handlers_from_running() -> None:
    """It removes the handlers of garbage, and a collection can begin wherever an object is made."""

    class Cycle(Handler):
        def __init__(self) -> None:
            super().__init__()
            self.itself = self
            after_fork(self.count_after)

    kept = [Cycle() for _ in range(300)]
    thresholds = gc.get_threshold()
    try:
        for objects in range(50, 500, 25):  # one of them is reached during the fork
            gc.disable()
            gc.collect()
            for _ in range(20):
                Cycle()
            gc.set_threshold(objects)
            gc.enable()
            assert in_child(lambda: all(handler.after == 1 for handler in kept))
    finally:
        gc.set_threshold(*thresholds)
        gc.enable()


def test_failed_handler_does_not_keep_others_from_running(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def fail(self) -> None:
            raise ValueError("broken")

    monkeypatch.setattr("sys.unraisablehook", lambda _raised: None)
    broken, handler = Broken(), Handler()
    after_fork(broken.fail)
    after_fork(handler.count_after)
    assert in_child(lambda: handler.after == 1)


def test_registered_objects_are_not_kept_alive() -> None:
    handler = Handler()
    lock = threading.Lock()
    after_fork(handler.count_after)
    fork_safe(lock)
    references: list[weakref.ref[Any]] = [weakref.ref(handler), weakref.ref(lock)]
    del handler, lock
    gc.collect()
    assert [reference() for reference in references] == [None, None]
    assert all(reference() is not None for reference in [*forks._after, *forks._locks])


def test_fork_waits_for_end_of_postponed_block() -> None:
    inside, over = threading.Event(), threading.Event()
    order: list[str] = []

    def work() -> None:
        with postponed():
            inside.set()
            over.wait()
            order.append("block ended")

    handler = Handler()
    before_fork(handler.count_before)
    worker = threading.Thread(target=work)
    worker.start()
    inside.wait()
    forker = threading.Thread(target=lambda: order.append(f"child saw {in_child(lambda: bool(order))}"))
    forker.start()
    wait_until(lambda: forks.gate._forker is not None, what="the other thread forks")
    assert (handler.before, order) == (0, [])
    over.set()
    worker.join()
    forker.join()
    assert order == ["block ended", "child saw True"]


def test_thread_in_postponed_block_enters_another_while_fork_waits() -> None:
    inside = threading.Event()

    def work() -> None:
        with postponed():
            inside.set()
            wait_until(lambda: forks.gate._forker is not None, what="a thread forks")
            with postponed():
                pass

    worker = threading.Thread(target=work)
    worker.start()
    inside.wait()
    assert in_child(lambda: True)
    worker.join()


def test_fork_inside_postponed_block_does_not_wait_for_itself() -> None:
    def enter_again() -> bool:
        with postponed():
            return True

    with postponed():
        assert in_child(enter_again)
    with postponed():
        pass


def test_socket_that_child_cuts_off_stays_open_in_parent() -> None:
    ours, other = socket.socketpair()
    with ours, other:

        def cut() -> bool:
            cut_off([ours.fileno(), -1])
            with pytest.raises(BrokenPipeError):
                ours.sendall(b"from the child")
            ours.shutdown(socket.SHUT_RDWR)
            return True

        assert in_child(cut)
        ours.sendall(b"from the parent")
        assert other.recv(100) == b"from the parent"
