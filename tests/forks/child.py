"""Forked children of the test's own process."""

import os
import sys
import traceback
from collections.abc import Callable


def in_child(act: Callable[[], object]) -> bool:
    """Whether `act` returns something true in a forked child."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1] == 0
    code = 1
    try:
        code = 0 if act() else 1
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        os._exit(code)
