"""Who a worker is: a label for people, and a random part so that no restart ever looks like its predecessor."""

from __future__ import annotations

import os
import secrets
import socket

from holdfast.domain.names import MAX_NAME


def worker_id(label: str | None = None) -> str:
    given = label or f"{socket.gethostname()}-{os.getpid()}"
    random = secrets.token_hex(4)
    return f"{given[: MAX_NAME - len(random) - 1]}-{random}"
