"""Kill a process with everything it started, also what forked twice or made a session of its own.

This works because runners and supervisors are child subreapers: an orphan becomes a child of the nearest one instead
of leaving the tree. A tree is first stopped and scanned again until nothing new appears, since a process that is killed
while its sibling forks would leave the newcomer behind. A scan counts only when everything known has really stopped:
a process that gets SIGSTOP in the middle of a fork finishes the fork first.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection, Iterable
from os import WNOHANG, getpid, kill, waitpid
from time import monotonic, sleep

from holdfast.runners.process_table import Process, has_stopped, process, processes

_MAX_ROUNDS = 50  # a bound for a fork bomb that outruns the scan; the last round is killed all the same
_STOP_SECONDS = 1.0  # what sits in an uninterruptible system call may take for ever to stop; it is killed all the same
_POLL_SECONDS = 0.001
_REAP_POLL_SECONDS = 0.005


def children(pid: int) -> list[int]:
    """The direct children of a process; zombies count, because somebody has to wait for them."""
    return [found.pid for found in processes() if found.parent == pid]


def descendants(pid: int) -> list[int]:
    """All living descendants, nearest first."""
    return [found.pid for found in _below({pid}, processes()) if not found.is_zombie]


def kill_tree(pid: int) -> list[int]:
    """Stop the whole tree, then SIGKILL it, `pid` included. Returns what was killed; nobody is waited for."""
    root = process(pid)
    return [] if root is None else _kill([root])


def kill_trees(pids: Iterable[int]) -> list[int]:
    """`kill_tree` for several roots that may have started each other."""
    return _kill([root for pid in pids if (root := process(pid)) is not None])


def kill_strays(parent_pid: int, known: Collection[int]) -> list[int]:
    """Kill the trees of those children of a subreaper that it does not know: orphans it has adopted.

    Returns the pids of these children, dead ones included; the caller waits for them.
    """
    strays = [found for found in processes() if found.parent == parent_pid and found.pid not in known]
    _kill([stray for stray in strays if not stray.is_zombie])
    return [stray.pid for stray in strays]


def reap(pids: Iterable[int], timeout_seconds: float = 1.0) -> list[int]:
    """Wait for those of the killed that are, or become, children of this process; returns what is still dying."""
    waiting = list(pids)
    deadline = monotonic() + timeout_seconds
    while waiting := [pid for pid in waiting if _is_dying(pid)]:
        if monotonic() >= deadline:
            break
        sleep(_REAP_POLL_SECONDS)
    return waiting


def _is_dying(pid: int) -> bool:
    try:
        return waitpid(pid, WNOHANG)[0] == 0
    except ChildProcessError:
        # Not our child, or not yet: it becomes one when the process between us has died.
        found = process(pid)
        return found is not None and not found.is_zombie


def _kill(roots: list[Process]) -> list[int]:
    tree: dict[int, Process] = {}
    found = {root.pid: root for root in roots if root.pid != getpid()}
    deadline = monotonic() + _STOP_SECONDS
    for _ in range(_MAX_ROUNDS):
        if found.keys() <= tree.keys():
            break
        _stop([item for pid, item in found.items() if pid not in tree], deadline)
        tree = found | tree
        found = {item.pid: item for item in _below(tree.keys(), processes()) if item.pid != getpid()}
    tree = found | tree
    for item in tree.values():
        _send(item, signal.SIGKILL)
    return list(tree)


def _stop(targets: list[Process], deadline: float) -> None:
    for target in targets:
        _send(target, signal.SIGSTOP)
    running = targets
    while running := [target for target in running if not has_stopped(target.pid)]:
        if monotonic() >= deadline:
            return
        sleep(_POLL_SECONDS)


def _below(roots: Collection[int], table: list[Process]) -> list[Process]:
    by_parent: dict[int, list[Process]] = {}
    for item in table:
        by_parent.setdefault(item.parent, []).append(item)
    found: list[Process] = []
    seen = set(roots)
    edge = list(roots)
    while edge:
        edge_items = [item for pid in edge for item in by_parent.get(pid, []) if item.pid not in seen]
        found += edge_items
        edge = [item.pid for item in edge_items]
        seen.update(edge)
    return found


def _send(target: Process, signal_number: int) -> None:
    """Signal the process that was seen, and not another one that got its pid since."""
    if target.is_zombie:
        return
    try:
        _send_by_descriptor(target, signal_number)
    except (ProcessLookupError, PermissionError):
        return  # gone, or turned into somebody we may not signal (a setuid program)
    except (AttributeError, OSError):
        # No pidfd here (macOS, some sandboxes), or no descriptor left: a small race is better than a survivor.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(target.pid, signal_number)


def _send_by_descriptor(target: Process, signal_number: int) -> None:
    # The descriptor pins the process: what is compared is what is signalled.
    descriptor = os.pidfd_open(target.pid)
    try:
        now = process(target.pid)
        if now is not None and now.started == target.started:
            signal.pidfd_send_signal(descriptor, signal_number)
    finally:
        os.close(descriptor)
