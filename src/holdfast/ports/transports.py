"""What a transport asks: which jobs to send word of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from holdfast.ports.store import Store

if TYPE_CHECKING:
    from holdfast.domain.offers import Offer


class OfferStore(Store, Protocol):
    """What a transport needs beside the port: which jobs it may name in messages, and what became of them."""

    def offers(self, queue: str, limit: int) -> list[Offer]: ...

    def offers_of(self, job_ids: Sequence[str]) -> dict[str, Offer]: ...

    def offered_queues(self) -> list[str]: ...
