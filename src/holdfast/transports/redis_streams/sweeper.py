"""The sweeper: one winner a period, who makes every stream what it should be, one queue at a time.

It needs nothing but the database to do so, which is why losing all of Redis costs latency and never a job:

lost group               made again; it begins at the first message there is
in somebody's hands      left alone while that one has the lease; otherwise, after a while, taken over: put back if the
                         job can be claimed, else dropped
unread, or in no hands   dropped when its job cannot be claimed now
unreadable, or no job    to the dead letters
missing                  up to the window, what is due and unclaimed is offered, in the order of a claim

Messages are not taken over by XAUTOCLAIM: it goes by time alone, and would take the message of a job that runs for
longer than that out of the hands of the worker that runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from holdfast.ports import OfferStore
from holdfast.transports.redis_streams.disposal import Disposal, why_dead
from holdfast.transports.redis_streams.link import RedisAway
from holdfast.transports.redis_streams.messages import Message, moment
from holdfast.transports.redis_streams.options import StreamOptions
from holdfast.transports.redis_streams.streams import Contents, Streams
from holdfast.transports.redis_streams.troubles import Troubles


class Sweeper:
    def __init__(self, store: Callable[[], OfferStore], options: StreamOptions) -> None:
        self._store = store
        self._options = options
        self._streams = Streams(options, options.sweep_timeout_seconds)
        self._troubles = Troubles()

    def steps(self) -> Iterator[int]:
        """One queue a step: how many messages were added or removed. Ends where Redis does not answer; a queue that is
        in trouble keeps no other from its turn."""
        with suppress(RedisAway):
            waiting = set(self._store().offered_queues())
            known = self._troubles.guarded("", self._streams.queues) or set()
            for queue in sorted(waiting | known):
                yield self._troubles.guarded(queue, partial(self.sweep, queue)) or 0

    def sweep(self, queue: str) -> int:
        contents = self._streams.look(queue)
        disposal = self._judged(contents)
        disposal.carry_out(self._streams, self._options.takeover_seconds, announce=True)
        vanished = _vanished(contents)
        if vanished:
            self._streams.drop(queue, [(message_id, "") for message_id in vanished])
        added = self._top_up(queue, len(contents.messages) - len(disposal.drop) - len(disposal.bury))
        self._streams.tidy(queue, self._options.forget_consumer_seconds)
        return len(disposal) + len(vanished) + added

    def close(self) -> None:
        self._streams.close()

    def _judged(self, contents: Contents) -> Disposal:
        """The messages first, then their jobs: a job is committed before a message names it."""
        named = {message.job_id for message in contents.messages if message.job_id is not None}
        offers = self._store().offers_of(list(named))
        unread = {message.job_id for message in contents.messages if _is_unread(message, contents)}
        disposal = Disposal()
        for message in contents.messages:
            held = contents.held.get(message.id)
            if held is not None and held.seconds < self._options.takeover_seconds:
                continue
            reason = why_dead(message, offers)
            if reason is not None:
                disposal.bury.append((message, reason))
                continue
            offer = offers[message.job_id or ""]
            if held is not None and offer.owner == held.consumer:
                continue
            if not offer.claimable:
                disposal.drop.append(message)
            elif message.job_id not in unread:
                disposal.put_back.append(message)
            elif not _is_unread(message, contents):
                disposal.drop.append(message)
        return disposal

    def _top_up(self, queue: str, length: int) -> int:
        if length >= self._options.window:
            return 0
        offers = self._store().offers(queue, self._options.window)
        jobs = [(offer.job_id, offer.seq) for offer in offers]
        return self._streams.add(queue, jobs, only_new=True) if jobs else 0


def _is_unread(message: Message, contents: Contents) -> bool:
    return moment(message.id) > moment(contents.last_id)


def _vanished(contents: Contents) -> list[str]:
    """Ids in somebody's hands whose messages are gone: the stream was trimmed, or they were deleted."""
    if not contents.is_whole:
        return []
    there = {message.id for message in contents.messages}
    return [message_id for message_id in contents.held if message_id not in there]
