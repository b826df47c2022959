"""What offers jobs to RQ that have no message: those that became due later (a retry, a delay, a lease that was reaped),
that were enqueued by others (HTTP, the command line, the user's own transaction), and those whose message got lost.

One process a period does it, for every queue that has something to claim, and never beyond the window of a queue.
Redis being away is no failure: it is looked for again in the next period. A queue that is refused (its key in Redis is
of another kind, say) keeps no other from its turn.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from redis import RedisError, ResponseError

from holdfast.domain.errors import InvalidInput
from holdfast.ports import OfferStore
from holdfast.settings import mask_secrets
from holdfast.transports.rq_queues import RqQueues

SWEEP_SECONDS = 5.0
SWEEPING = "rq_sweep"
DEEPEST = 10_000  # jobs of a queue that are looked at in one sweep

_logger = logging.getLogger("holdfast")


class RqSweep:
    def __init__(self, store: OfferStore, queues: RqQueues) -> None:
        self._store = store
        self._queues = queues
        self._away = False
        self._refused: set[str] = set()

    def steps(self) -> Iterator[int]:
        """One queue a step: how many messages it got."""
        for name in self._store.offered_queues():
            try:
                yield self._offer(name)
                self._away = False
                self._refused.discard(name)
            except (ResponseError, InvalidInput) as error:
                if name not in self._refused:
                    _logger.warning("RQ gets no messages for queue %r: %s", name, error)
                self._refused.add(name)
            except (RedisError, OSError) as error:
                if not self._away:
                    _logger.warning("RQ's Redis does not answer: %s", mask_secrets(f"{type(error).__name__}: {error}"))
                self._away = True
                return

    def _offer(self, queue: str) -> int:
        """As many as could be in the queue already, and then what is not: its first jobs have messages, if any have.
        Where the first of them were refused, those behind must not wait for ever: then it looks further."""
        room, pushed, depth = self._queues.room(queue), 0, self._queues.window
        while pushed < room:
            offers = self._store.offers(queue, depth)
            pushed += self._queues.push(offers)
            if len(offers) < depth or depth == DEEPEST:
                break
            depth = min(4 * depth, DEEPEST)
        return pushed
