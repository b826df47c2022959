"""RQ's queues in a Redis: who tells them of jobs, and who offers again what has no message."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdfast.domain.errors import ConfigurationError
from holdfast.maintenance.chores import Chore
from holdfast.settings import mask_secrets
from holdfast.transports.bounded import Bounded

if TYPE_CHECKING:
    from holdfast.domain.offers import Offer
    from holdfast.ports import OfferStore
    from holdfast.transports.rq_queues import RqQueues

OFFER_SECONDS = 0.25  # that an enqueue may take longer because of RQ
SWEEP_TIMEOUT_SECONDS = 2.0

_logger = logging.getLogger("holdfast")


def open_rq(url: str, serializer: str, timeout_seconds: float) -> RqQueues:
    """RQ's queues in that Redis, which is looked for at the first use."""
    try:
        from holdfast.transports.rq_queues import RqQueues
    except ImportError as error:
        raise ConfigurationError(
            f"HOLDFAST_RQ_URL is set, and {error.name} is not installed: pip install holdfast[rq]"
        ) from error
    return RqQueues(url, serializer, timeout=timeout_seconds)


def rq_chore(store: OfferStore, url: str, serializer: str) -> Chore:
    """Offers to RQ what has no message there."""
    queues = open_rq(url, serializer, SWEEP_TIMEOUT_SECONDS)
    from holdfast.transports.rq_sweep import SWEEP_SECONDS, SWEEPING, RqSweep

    return Chore(SWEEPING, SWEEP_SECONDS, RqSweep(store, queues).steps)


def open_offers(url: str, serializer: str) -> tuple[Callable[[Sequence[Offer]], None], Callable[[], None]]:
    """What tells RQ of jobs within a bounded time and never fails, and what closes it."""
    queues = open_rq(url, serializer, OFFER_SECONDS)

    def failed(problem: str) -> None:
        _logger.warning("RQ could not be told of a job at once: %s. It is offered again later.", mask_secrets(problem))

    return Bounded(queues.push, failed, seconds=OFFER_SECONDS), queues.close
