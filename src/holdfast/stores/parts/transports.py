"""What messages may name, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.domain.offers import Offer
from holdfast.stores.database import Database
from holdfast.stores.verbs import (
    offers,
)


class TransportPart:
    database: Database

    def offers(self, queue: str, limit: int) -> list[Offer]:
        """What may be offered in messages, in the order of a claim."""
        return offers.offers(self.database, queue, limit)

    def offers_of(self, job_ids: Sequence[str]) -> dict[str, Offer]:
        return offers.offers_of(self.database, job_ids)

    def offered_queues(self) -> list[str]:
        """Those that have something to claim, now or later."""
        return offers.offered_queues(self.database)
