"""The streams of a fleet: what can be done with them, each in one round trip. Raises `RedisAway` or `RedisRefused`."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from holdfast.domain.errors import InvalidInput
from holdfast.domain.names import check_name
from holdfast.transports.redis_streams import scripts
from holdfast.transports.redis_streams.link import Link, Script
from holdfast.transports.redis_streams.messages import Message, message
from holdfast.transports.redis_streams.options import GROUP, Names, StreamOptions

ADD, TAKE, DROP, PUT_BACK = (Script(scripts.text(name)) for name in ("add", "take", "drop", "put_back"))
BURY, LOOK, TIDY = (Script(scripts.text(name)) for name in ("bury", "look", "tidy"))
DEAD_LETTERS_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class Held:
    """In whose hands a message is, and for how long."""

    consumer: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Contents:
    """A stream at one moment: its messages, what is in somebody's hands, and the last id that was handed out."""

    messages: list[Message]
    held: dict[str, Held]
    last_id: str
    is_whole: bool  # False: there are more than were looked at


class Streams:
    def __init__(self, options: StreamOptions, timeout_seconds: float) -> None:
        self.link = Link(options.url, timeout_seconds)
        self.names = Names(options.prefix)
        self._window = options.window

    def add(self, queue: str, jobs: Iterable[tuple[str, int]], *, only_new: bool = False) -> int:
        """As far as there is room: id and seq of each job. With `only_new` not those that a message names already."""
        names = self.names
        arguments = [self._window, queue, names.wake, "new" if only_new else "", *chain.from_iterable(jobs)]
        return int(self.link.run(ADD, [names.stream(queue), names.queues], arguments))

    def take(self, consumer: str, queues: Sequence[str] | None, limit: int) -> list[Message]:
        """Messages that nobody has read, in the order of the queues; None is all of them."""
        if queues is not None and not queues:
            return []
        seed = random.randrange(2**31)
        arguments = [self.names.streams, GROUP, consumer, limit, seed, *(queues or ())]
        found = self.link.run(TAKE, [self.names.queues], arguments)
        return [message(queue, message_id, fields) for queue, message_id, fields in found]

    def drop(self, queue: str, messages: Iterable[tuple[str, str]]) -> int:
        """Acknowledge and delete: id of each, and the job that it must name ('' for any)."""
        return int(self.link.run(DROP, [self.names.stream(queue)], [GROUP, *chain.from_iterable(messages)]))

    def put_back(self, queue: str, ids: Iterable[str], held_seconds: float = 0.0, *, announce: bool) -> int:
        """For somebody else to read; not those that somebody has taken within the last so many seconds."""
        arguments = [GROUP, int(held_seconds * 1000), self.names.wake if announce else "", *ids]
        return int(self.link.run(PUT_BACK, [self.names.stream(queue)], arguments))

    def bury(self, queue: str, dead: Iterable[tuple[Message, str]]) -> None:
        """Dead letters, with the reason why."""
        letters = chain.from_iterable((found.id, reason, found.text) for found, reason in dead)
        arguments = [GROUP, DEAD_LETTERS_KEPT, queue, *letters]
        self.link.run(BURY, [self.names.stream(queue), self.names.dead], arguments)

    def look(self, queue: str) -> Contents:
        most = 2 * self._window
        entries, pending, last_id = self.link.run(LOOK, [self.names.stream(queue)], [GROUP, most])
        held = {row[0].decode(): Held(row[1].decode("utf-8", "replace"), row[2] / 1000) for row in pending}
        found = [message(queue, message_id, fields or ()) for message_id, fields in entries]
        return Contents(found, held, last_id.decode(), is_whole=max(len(entries), len(pending)) < most)

    def tidy(self, queue: str, idle_seconds: float) -> int:
        keys = [self.names.stream(queue), self.names.queues]
        return int(self.link.run(TIDY, keys, [GROUP, int(idle_seconds * 1000), queue]))

    def queues(self) -> set[str]:
        """Those that have had a message. Anybody can write to Redis: what cannot be the name of a queue is removed."""
        members = self.link.members(self.names.queues)
        names = {member: name for member in members if (name := _queue_name(member)) is not None}
        if foreign := members - names.keys():
            self.link.remove_members(self.names.queues, foreign)
        return set(names.values())

    def close(self) -> None:
        self.link.close()


def _queue_name(member: bytes) -> str | None:
    try:
        return check_name(member.decode(), "queue")
    except (UnicodeDecodeError, InvalidInput):
        return None
