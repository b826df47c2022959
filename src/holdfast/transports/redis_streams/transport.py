"""What all stores of a process share: the streams, the sender, which stream the message of a claim came from, and the
tasks of jobs that were not asked for."""

from __future__ import annotations

import threading
from collections import OrderedDict

from holdfast.forks import fork_safe
from holdfast.transports.redis_streams.options import StreamOptions
from holdfast.transports.redis_streams.publisher import Publisher
from holdfast.transports.redis_streams.streams import Streams

MOST_REMEMBERED = 100_000


class Transport:
    def __init__(self, options: StreamOptions) -> None:
        self.options = options
        self.streams = Streams(options, options.timeout_seconds)
        self.publisher = Publisher(self.streams)
        self.origins = Remembered()  # the queues of jobs that were claimed here: their reports need not look them up
        self.tasks = Remembered()  # of jobs that somebody here was offered and did not ask for; a job keeps its task

    def close(self) -> None:
        self.publisher.close()
        self.streams.close()


class Remembered:
    """A name for each of the latest so many jobs."""

    def __init__(self) -> None:
        self._lock = fork_safe(threading.Lock())
        self._names: OrderedDict[str, str] = OrderedDict()

    def note(self, job_id: str, name: str) -> None:
        with self._lock:
            self._names[job_id] = name
            if len(self._names) > MOST_REMEMBERED:
                self._names.popitem(last=False)

    def get(self, job_id: str) -> str | None:
        return self._names.get(job_id)

    def take(self, job_id: str) -> str | None:
        with self._lock:
            return self._names.pop(job_id, None)
