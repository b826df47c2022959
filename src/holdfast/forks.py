"""Forks: what a process does before one, and what its child does after it.

A child of `os.fork` has a copy of every object, but only the thread that forked. So each object that holds a
connection, a thread or a lock registers here, weakly, and pays nothing until the process forks:

fork_safe      a lock that another thread may hold at that moment; the child gets it released
after_fork     a method that the child calls: it leaves connections and threads to the parent and gets its own
before_fork    a method that the parent calls: it closes what a child must not inherit
postponed      a block in which this process does not fork: a fork by another thread waits for its end
notice_fork    a check before each call: uWSGI forks in C, which runs no Python handler; the first call then runs them

`leak` and `cut_off` are for connections that belong to the parent: no finalizer may close them, and no call may reach
their server.
"""

from __future__ import annotations

import os
import socket
import stat
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from os import getpid
from threading import Condition, Lock, RLock, get_ident
from typing import Any, TypeVar

MAX_WAIT_SECONDS = 10.0  # then the process forks all the same

AnyLock = TypeVar("AnyLock")
_Functions = dict["weakref.ref[Any]", Any]

_locks: _Functions = {}
_before: _Functions = {}  # the methods' functions, by their objects
_after: _Functions = {}
_leaked: list[object] = []
_process = getpid()  # the process that the connections belong to
_noticing = Lock()


def fork_safe(lock: AnyLock) -> AnyLock:
    """The same Lock, RLock or Event, which no thread holds in a child."""
    _locks[weakref.ref(lock, _forget(_locks))] = None
    return lock


def before_fork(method: Callable[[], None]) -> None:
    """Call this bound method in the parent, before every fork, while no other thread is in a `postponed` block."""
    _register(_before, method)


def after_fork(method: Callable[[], None]) -> None:
    """Call this bound method in every child. One method of an object."""
    _register(_after, method)


def notice_fork() -> None:
    """Renew connections, threads and locks if this process was forked in C. Costs 0.1 microseconds per call."""
    if getpid() != _process:
        with _noticing:
            if getpid() != _process:
                _renew()


def leak(*inherited: object) -> None:
    """Keep objects of the parent for as long as this process lives, so that no finalizer of theirs runs."""
    _leaked.extend(inherited)


def cut_off(descriptors: Iterable[int]) -> None:
    """Replace sockets of the parent by one whose other end is closed. The parent's connections stay as they are."""
    ours, other = socket.socketpair()
    other.close()
    with ours:
        for descriptor in descriptors:
            with suppress(OSError):  # closed
                if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                    os.dup2(ours.fileno(), descriptor, inheritable=False)


class _Gate:
    """Counts the users of what must not be in use at a fork, and keeps new ones out while a thread forks."""

    def __init__(self) -> None:
        self._lock = RLock()  # taken directly where it is hot: a Condition costs three times as much
        self._changed = Condition(self._lock)
        self._users: list[int] = []  # threads; a list, because a finalizer may interrupt `enter` to call `leave`
        self._forker: int | None = None

    def enter(self) -> None:
        thread = get_ident()
        with self._lock:
            if self._forker is not None:
                self._changed.wait_for(lambda: self._forker in (None, thread) or thread in self._users)
            self._users.append(thread)

    def leave(self) -> None:
        with self._lock:
            try:
                self._users.remove(get_ident())
            except ValueError:  # entered by another thread, or by the parent
                if self._users:
                    self._users.pop()
            if self._forker is not None:
                self._changed.notify_all()

    @contextmanager
    def block(self) -> Iterator[None]:
        self.enter()
        try:
            yield
        finally:
            self.leave()

    def close(self) -> None:
        thread = get_ident()  # may be a user itself, whose end it cannot wait for
        with self._changed:
            self._changed.wait_for(lambda: self._forker is None)
            self._forker = thread
            self._changed.wait_for(lambda: all(user == thread for user in self._users), MAX_WAIT_SECONDS)

    def open(self) -> None:
        with self._changed:
            self._forker = None
            self._changed.notify_all()

    def renew(self) -> None:
        """In a child, where only this thread is left."""
        self._lock = RLock()
        self._changed = Condition(self._lock)
        self._users.clear()
        self._forker = None


gate = _Gate()
postponed = gate.block


def _register(functions: _Functions, method: Any) -> None:
    # Not a WeakMethod: its callback fails when the interpreter exits.
    functions[weakref.ref(method.__self__, _forget(functions))] = method.__func__


def _forget(references: _Functions) -> Callable[[weakref.ref[Any]], None]:
    def forget(reference: weakref.ref[Any]) -> None:
        references.pop(reference, None)

    return forget


def _prepare() -> None:
    gate.close()
    _call(_before)


def _renew() -> None:
    global _process
    gate.renew()
    for reference in list(_locks):
        lock: Any = reference()
        # The thread that forked may hold one itself, and releases it.
        if lock is not None and not (hasattr(lock, "_is_owned") and lock._is_owned()):
            lock._at_fork_reinit()
    try:
        _call(_after)
    finally:
        _process = getpid()


def _call(functions: _Functions) -> None:
    """Each of them; their errors go to `sys.unraisablehook`, as those of all fork handlers."""
    errors: list[Exception] = []
    for reference in list(functions):  # not its items: to make pairs may collect garbage, which removes entries
        owner, function = reference(), functions.get(reference)
        try:
            if owner is not None and function is not None:
                function(owner)
        except Exception as error:
            errors.append(error)
    if errors:
        raise ExceptionGroup("handlers of a fork failed", errors)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_prepare, after_in_parent=gate.open, after_in_child=_renew)
