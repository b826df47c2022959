"""Become a server that dies with its owner.

Run as a script: ``exec_child.py OWNER_PID DEATH_SIGNAL UID GID COMMAND...``
(UID and GID are ``-`` to stay the same user). It drops to the given user, asks
the kernel for a signal on the owner's death, and turns into the command.

The order matters: a change of user clears the parent-death signal, so it must be
set after the drop. This is a script of its own, not a ``preexec_fn``, because
running Python between fork and exec can deadlock in a process with threads.
It drops the user itself because that user may not be able to run the owner's
Python (a Python under /root, for one).
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def drop_to(uid: int, gid: int) -> None:
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)


def die_with_owner(owner_pid: int, death_signal: int) -> None:
    if sys.platform != "linux":
        return  # only Linux has this; elsewhere the owner's exit hook has to do
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != owner_pid:
        raise SystemExit("the owner died before the server started")


def main() -> None:
    owner_pid, death_signal, uid, gid, *command = sys.argv[1:]
    if uid != "-":
        drop_to(int(uid), int(gid))
    die_with_owner(int(owner_pid), int(death_signal))
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
