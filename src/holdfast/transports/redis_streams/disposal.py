"""What is to be done with messages that nobody uses: drop them, put them back, or bury those that lead nowhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.domain.offers import Offer
from holdfast.transports.redis_streams.messages import Message
from holdfast.transports.redis_streams.streams import Streams

NO_JOB_NAMED = "it names no job: job_id must be a UUID"
NO_SUCH_JOB = "there is no such job"
OTHER_QUEUE = "its job is of another queue"


def why_dead(message: Message, offers: Mapping[str, Offer]) -> str | None:
    """Why a message leads nowhere, now and for ever; None when it does lead to a job."""
    if message.job_id is None:
        return NO_JOB_NAMED
    offer = offers.get(message.job_id)
    if offer is None:
        return NO_SUCH_JOB
    return None if offer.queue == message.queue else OTHER_QUEUE


@dataclass(slots=True)
class Disposal:
    drop: list[Message] = field(default_factory=list)
    put_back: list[Message] = field(default_factory=list)
    bury: list[tuple[Message, str]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.drop) + len(self.put_back) + len(self.bury)

    def carry_out(self, streams: Streams, held_seconds: float = 0.0, *, announce: bool = False) -> None:
        """`held_seconds`: a message that somebody has taken more lately than that is not put back. `announce`: wake who
        waits for messages; whoever reads them itself must not, because it would wake itself, without end."""
        for queue, messages in _by_queue(self.drop).items():
            streams.drop(queue, [(message.id, message.job_id or "") for message in messages])
        for queue, messages in _by_queue(self.put_back).items():
            streams.put_back(queue, [message.id for message in messages], held_seconds, announce=announce)
        for message, reason in self.bury:
            streams.bury(message.queue, [(message, reason)])


def _by_queue(messages: list[Message]) -> dict[str, list[Message]]:
    found: dict[str, list[Message]] = {}
    for message in messages:
        found.setdefault(message.queue, []).append(message)
    return found
