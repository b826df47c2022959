"""Start a program through the shim: new session, no descriptor but its three, dies with this process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_SHIM = str(Path(__file__).with_name("shim.py"))
_STARTED_IN = Path.cwd()  # the worker's directory; user code may change the current one


@dataclass(frozen=True, slots=True)
class Spawned:
    popen: subprocess.Popen[bytes]
    status: int  # says why exec failed; ends without a word when it worked

    @property
    def stdin(self) -> IO[bytes] | None:
        return self.popen.stdin

    def stream(self, name: str) -> IO[bytes]:
        found: IO[bytes] | None = getattr(self.popen, name)
        assert found is not None
        return found


def dying_with_us(argv: Sequence[str], status: int) -> list[str]:
    """The command through the shim; `status` is the inherited descriptor that hears of a failed exec."""
    return [sys.executable, "-I", "-S", _SHIM, str(os.getpid()), str(status), *argv]


def spawn(argv: Sequence[str], env: Mapping[str, str], cwd: str, *, with_stdin: bool) -> Spawned:
    """Raises OSError when not even the shim could be started."""
    read_end, write_end = os.pipe()
    try:
        popen = subprocess.Popen(
            [word.encode(errors="surrogateescape") for word in dying_with_us(argv, write_end)],
            stdin=subprocess.PIPE if with_stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[write_end],
            start_new_session=True,
            cwd=cwd,
            env=dict(env),
            bufsize=0,
        )
    except BaseException:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    return Spawned(popen, read_end)


def in_worker_directory(path: str) -> str:
    return str(_STARTED_IN / path)


def program(name: str) -> str:
    """A program given by a relative path is meant from the worker's directory, not from the command's temporary one."""
    return in_worker_directory(name) if "/" in name else name
