"""Executed as `python -I -S shim.py PARENT_PID STATUS_FD PROGRAM ARGUMENT…`; becomes the program by exec.

It stands between the runner and the program because the parent-death signal must be set after the fork and before the
program starts, and running Python between fork and exec of a process with threads is not safe. It imports nothing of
Holdfast: `-I -S` starts in a few milliseconds and reads nothing that the user's environment could redirect.

When the program cannot be executed, the number and text of the error go to STATUS_FD; when it can, exec closes it.
"""

import ctypes
import os
import signal
import sys

SET_PARENT_DEATH_SIGNAL = 1


def main() -> None:
    parent, status = int(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(status, False)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # the runner died before its death could be announced
        os._exit(1)
    reset_signals()
    try:
        os.execvp(sys.argv[3], sys.argv[3:])
    except (OSError, ValueError) as error:
        number = getattr(error, "errno", None) or 0
        os.write(status, f"{number} {getattr(error, 'strerror', None) or error}".encode())
    os._exit(127)


def reset_signals() -> None:
    # Ignored signals and the mask survive exec: a runner ignores SIGINT, and Python itself ignores SIGPIPE.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


main()
