"""Claims that are asked for again under the same request id: the same answer, from whichever control plane gave it.

Whoever arrives is looked up; whoever waits is looked up again now and then, because the first try of a request may be
answered elsewhere after its second has begun to wait here. One query serves all of them.

Every repeat renews the leases. A client that repeats a request for `REPEATED_SECONDS` receives no response in time, for
example behind a slow proxy. Its jobs are released, so that another worker runs them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from holdfast.domain.errors import StoreUnavailable
from holdfast.ports import Store
from holdfast.serve.batching import Batch
from holdfast.serve.budget import Budget
from holdfast.serve.problems import Refused
from holdfast.serve.waiters import Found, Waiter, Wanted

Request = tuple[str, str]  # credential and request id
REPEATED_SECONDS = 60.0
MAX_REPEATED = 10_000


class Repeats:
    def __init__(self, claims: Budget, look_every: float) -> None:
        self._claims = claims
        self._look_every = look_every
        self._waiting: dict[Request, Waiter] = {}
        self._repeated: dict[Request, float] = {}  # when it was first sent again
        self._known: Batch[Request, bool] = Batch(self._look_up)
        self._looking: asyncio.Task[None] | None = None

    async def answer_before(self, wanted: Wanted) -> Found | None:
        """What the request was granted before; None when that was nothing, or when it has no id."""
        request = _request(wanted)
        if request is None or not (await self._known([request]))[0]:
            return None
        self._repeated.setdefault(request, time.monotonic())
        while len(self._repeated) > MAX_REPEATED:
            del self._repeated[next(iter(self._repeated))]
        return await self._again(request)

    def is_unheard(self, wanted: Wanted) -> bool:
        """Whether the client has repeated its request for more than `REPEATED_SECONDS`."""
        request = _request(wanted)
        since = None if request is None else self._repeated.get(request)
        return since is not None and time.monotonic() - since > REPEATED_SECONDS

    def waiter(self, wanted: Wanted) -> Waiter | None:
        """The one who waits here for the same request."""
        request = _request(wanted)
        return None if request is None else self._waiting.get(request)

    def add(self, waiter: Waiter) -> None:
        request = _request(waiter.wanted)
        if request is None:
            return
        self._waiting[request] = waiter
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._keep_looking())

    def remove(self, waiter: Waiter) -> None:
        request = _request(waiter.wanted)
        if request is not None and self._waiting.get(request) is waiter:
            del self._waiting[request]

    def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()

    async def _again(self, request: Request) -> Found | None:
        def claim_again(store: Store) -> Found | None:
            asked_at = time.monotonic()
            jobs = store.claim_again(*request)
            return None if jobs is None else Found(jobs, asked_at)

        return await self._claims.call(claim_again)

    async def _look_up(self, requests: Sequence[Request]) -> list[bool]:
        known = await self._claims.call(lambda store: store.known_requests(requests))
        return [request in known for request in requests]

    async def _keep_looking(self) -> None:
        while self._waiting:
            await asyncio.sleep(self._look_every)
            waiting = [request for request, waiter in self._waiting.items() if not waiter.asking]
            try:
                for request, is_known in zip(waiting, await self._known(waiting), strict=True):
                    if is_known:
                        await self._answer(request)
            except (StoreUnavailable, Refused):
                continue  # those who wait hear of it when their time is over

    async def _answer(self, request: Request) -> None:
        found = await self._again(request)
        waiter = self._waiting.get(request)
        if waiter is not None and found is not None and not waiter.asking:
            waiter.answer(found)


def _request(wanted: Wanted) -> Request | None:
    return None if wanted.request_id is None else (wanted.credential, wanted.request_id)
