"""From how a program ended, and what it said, to the outcome of the attempt."""

from __future__ import annotations

import errno
import signal
from collections.abc import Collection

from holdfast.domain.outcome import Cancelled, Crashed, Failed, JobError, Outcome, Snoozed, Succeeded
from holdfast.runners.commands.envelope import Cancel, Error, Result, Snooze

# Starting again changes nothing about these; anything else (no memory, too many processes) may pass.
_PERMANENT_START_ERRORS = frozenset(
    [
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.EACCES,
        errno.EPERM,
        errno.ENOEXEC,
        errno.ELOOP,
        errno.E2BIG,
        errno.EINVAL,
    ]
)


def not_started(program: str, number: int, text: str) -> Failed:
    """`number` is the errno of the failed start, 0 when there is none."""
    if number == errno.ENOENT:
        code, message = "command_not_found", f"command not found: {program}"
    elif number == errno.E2BIG:
        code = "command_not_started"
        message = f"{program}: the payload is too large for an argument; leave {{payload}} out and read stdin"
    else:
        code, message = "command_not_started", f"{program} could not be started: {text}"
    return Failed(JobError(code, message, retryable=number not in _PERMANENT_START_ERRORS and number != 0))


def after_success(last: Result | Snooze | Cancel | None) -> Outcome:
    match last:
        case None:
            return Succeeded()
        case Result(value=value):
            return Succeeded(value)
        case Snooze(delay_seconds=delay, reason=reason):
            return Snoozed(delay, reason)
        case Cancel(reason=reason):
            return Cancelled(reason)


def after_failure(exit_code: int, said: Error | None, errors: str, permanent: Collection[int]) -> Failed:
    """`errors` is the end of what went to stderr."""
    is_permanent = exit_code in permanent
    if said is not None:
        error = said.error
        retryable = error.retryable and not is_permanent
        return Failed(JobError(error.code, error.message, error.stack or errors or None, retryable), exit_code)
    message = f"the command exited with code {exit_code}"
    if last := next((line for line in reversed(errors.splitlines()) if line.strip()), ""):
        message += f": {last.strip()[:500]}"
    return Failed(JobError(f"exit_{exit_code}", message, errors or None, not is_permanent), exit_code)


def after_signal(number: int) -> Crashed:
    try:
        name = signal.Signals(number).name
    except ValueError:  # real-time signals have no name
        name = f"signal {number}"
    hint = "; often that is the kernel, out of memory" if number == signal.SIGKILL else ""
    return Crashed(f"the command was killed by {name}{hint}", signal=number)
