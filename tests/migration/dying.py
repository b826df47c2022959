"""Upgrades that are killed, one at each step: ``python -m tests.migration.dying URL [FIRST STRIDE]``.

Every upgrade runs in a process of its own that kills itself with SIGKILL just before its first, second, third...
statement, and at last before its commit; with a stride, only before its FIRST, FIRST + STRIDE... one. After each death
this prints "killed" and waits for a line, so that the test can look at the database. When an upgrade got to its end
alive, it prints "finished".
"""

import importlib
import itertools
import os
import signal
import sys

from sqlalchemy import event

from holdfast.stores.upgrade import upgrade
from tests.migration.databases import open_engine


def main(url: str, first: str = "1", stride: str = "1") -> None:
    # What is imported here, the many processes need not import again.
    importlib.import_module("alembic.command")
    open_engine(url)
    for fatal_step in itertools.count(int(first), int(stride)):
        if ended_alive(url, fatal_step):
            print("finished", flush=True)
            return
        print("killed", flush=True)
        sys.stdin.readline()


def ended_alive(url: str, fatal_step: int) -> bool:
    pid = os.fork()
    if pid == 0:
        upgrade_until(url, fatal_step)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return False
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"the upgrade to be killed at step {fatal_step} failed by itself")
    return True


def upgrade_until(url: str, fatal_step: int) -> None:
    steps = itertools.count(1)

    def die_when_due(*_details: object) -> None:
        if next(steps) == fatal_step:
            os.kill(os.getpid(), signal.SIGKILL)

    engine = open_engine(url)
    event.listen(engine, "before_cursor_execute", die_when_due)
    event.listen(engine, "commit", die_when_due)
    upgrade(engine)


if __name__ == "__main__":
    main(*sys.argv[1:])
