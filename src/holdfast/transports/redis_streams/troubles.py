"""Queues that cannot be swept, each told of once: a key of another kind stands where its stream should be, Redis is
full, or somebody wrote a job into the database under a name that no queue may have."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from holdfast.domain.errors import InvalidInput
from holdfast.transports.redis_streams.link import RedisRefused

Answer = TypeVar("Answer")

_logger = logging.getLogger("holdfast")


class Troubles:
    def __init__(self) -> None:
        self._told: set[str] = set()

    def guarded(self, queue: str, act: Callable[[], Answer]) -> Answer | None:
        """What came of it; None when it was refused. `queue` is '' for what concerns them all."""
        try:
            answer = act()
        except (RedisRefused, InvalidInput) as error:
            if queue not in self._told:
                self._told.add(queue)
                where = f"the messages of queue {queue!r}" if queue else "the names of queues"
                _logger.warning("Redis: %s cannot be seen to: %s. Their jobs are found without messages.", where, error)
            return None
        self._told.discard(queue)
        return answer
