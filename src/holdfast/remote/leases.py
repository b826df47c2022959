"""The leases that were given to this process. The last lines of a job are sent behind its report, and a control plane
takes them from whoever shows the attempt's lease: so they are remembered for long after it.

They are the process's, not one store's: a worker claims on one and sends log lines on another. An attempt's id is its
own wherever it was claimed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable

from holdfast.domain.job import Claimed
from holdfast.forks import fork_safe

REMEMBERED = 10_000


class Leases:
    """The newest so many. Claims and log lines come from different threads."""

    def __init__(self, most: int = REMEMBERED) -> None:
        self._most = most
        self._tokens: OrderedDict[str, str] = OrderedDict()
        self._lock = fork_safe(threading.Lock())

    def remember(self, jobs: Iterable[Claimed]) -> None:
        with self._lock:
            for job in jobs:
                self._tokens[job.attempt_id] = job.lease_token
                self._tokens.move_to_end(job.attempt_id)
            while len(self._tokens) > self._most:
                self._tokens.popitem(last=False)

    def shown(self, attempt_ids: Iterable[str]) -> list[dict[str, str]]:
        """As a request shows them; those that are not remembered are left out."""
        wanted = sorted(set(attempt_ids))
        with self._lock:
            return [{"attempt_id": id_, "lease_token": self._tokens[id_]} for id_ in wanted if id_ in self._tokens]


OF_THIS_PROCESS = Leases()
