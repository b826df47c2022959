"""Tells systemd how the worker is: `Type=notify` and its watchdog. Without systemd every call does nothing.

The protocol is one datagram of NAME=value lines to the socket named in $NOTIFY_SOCKET; see sd_notify(3).
"""

from __future__ import annotations

import os
import socket

# systemd reads its socket at once; should it ever not, the worker has better things to do than wait.
SEND_SECONDS = 1.0


def notify(**fields: str) -> bool:
    """Whether a message was sent. A service manager that is not there is no reason to stop working."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    message = "\n".join(f"{name}={_one_line(value)}" for name, value in fields.items())
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(SEND_SECONDS)
            sender.sendto(message.encode(errors="replace"), _path(address))
    except OSError:
        return False
    return True


def ready(status: str) -> bool:
    return notify(READY="1", STATUS=status)


def stopping() -> bool:
    return notify(STOPPING="1", STATUS="draining")


def status(text: str) -> bool:
    return notify(STATUS=text)


def watchdog() -> bool:
    """Still alive; to be sent every `watchdog_interval()` seconds, by whoever knows that it is true."""
    return notify(WATCHDOG="1")


def watchdog_interval() -> float | None:
    """How often systemd wants to hear of this process: half of what it waits; None when it does not ask."""
    microseconds = os.environ.get("WATCHDOG_USEC", "")
    meant_for = os.environ.get("WATCHDOG_PID") or str(os.getpid())
    if not microseconds.isdecimal() or int(microseconds) == 0 or meant_for != str(os.getpid()):
        return None
    return int(microseconds) / 1_000_000 / 2


def _path(address: str) -> str:
    """A leading @ stands for the zero byte of an abstract socket."""
    return "\0" + address[1:] if address.startswith("@") else address


def _one_line(value: str) -> str:
    """A line break would start another field."""
    return " ".join(value.splitlines())
