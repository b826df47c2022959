"""What all stores of a process share: the streams, the sender, and which stream the message of a claim came from."""

from __future__ import annotations

import threading
from collections import OrderedDict

from holdfast.transports.redis_streams.options import StreamOptions
from holdfast.transports.redis_streams.publisher import Publisher
from holdfast.transports.redis_streams.streams import Streams

MOST_REMEMBERED = 100_000


class Transport:
    def __init__(self, options: StreamOptions) -> None:
        self.options = options
        self.streams = Streams(options, options.timeout_seconds)
        self.publisher = Publisher(self.streams)
        self.origins = Origins()

    def close(self) -> None:
        self.publisher.close()
        self.streams.close()


class Origins:
    """The queues of jobs that were claimed here, so that their reports need not look them up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: OrderedDict[str, str] = OrderedDict()

    def note(self, job_id: str, queue: str) -> None:
        with self._lock:
            self._queues[job_id] = queue
            if len(self._queues) > MOST_REMEMBERED:
                self._queues.popitem(last=False)

    def take(self, job_id: str) -> str | None:
        with self._lock:
            return self._queues.pop(job_id, None)
