"""Turn this process into a runner: it dies with its supervisor, keeps its descendants, goes first without memory."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
from pathlib import Path

from holdfast.runners.prctl import set_child_subreaper, set_parent_death_signal

_OOM_SCORE_RAISE = 300  # of 1000: of two processes of about the same size the kernel takes the runner
_CEILING_BASE = 1024 * 1024 * 1024


def become_runner(parent: int, memory: int) -> None:
    set_parent_death_signal(signal.SIGKILL)
    if os.getppid() != parent:  # it died before we could ask to be told
        os._exit(1)
    set_child_subreaper()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the supervisor, which drains
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _volunteer_for_the_oom_killer()
    if memory:
        _limit_data(memory)


def _volunteer_for_the_oom_killer() -> None:
    score = Path("/proc/self/oom_score_adj")
    with contextlib.suppress(OSError, ValueError):  # not Linux, or a sandbox
        score.write_text(str(min(1000, int(score.read_text()) + _OOM_SCORE_RAISE)))


def _limit_data(memory: int) -> None:
    """A ceiling against one huge allocation; the supervisor measures what is really used and kills at the limit.

    RLIMIT_DATA counts address space (thread stacks, arenas), so it stands well above the limit for resident memory.
    """
    if sys.platform != "linux":
        return
    ceiling = 2 * memory + _CEILING_BASE
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard == resource.RLIM_INFINITY or ceiling < hard:
        resource.setrlimit(resource.RLIMIT_DATA, (ceiling, hard))
