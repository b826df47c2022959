"""The live event stream: every transition once, to those who may see it, without a query for each who listens."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from holdfast.domain.feed import FeedPage, FeedPlace
from holdfast.domain.job import NewJob
from holdfast.serve.api import live, speaking
from holdfast.stores.sql_store import SqlStore
from tests.serve import http
from tests.serve.grounds import Served, serving
from tests.servers.waiting import DEADLINE_SECONDS, wait_until

STREAM = "/api/v1/events/stream"


@dataclass
class Told:
    event: str
    data: dict[str, Any]
    id: str | None


@dataclass
class Ear:
    """What one client hears, one event at a time."""

    answer: httpx.Response
    lines: Iterator[str] = field(init=False)

    def __post_init__(self) -> None:
        self.lines = self.answer.iter_lines()
        assert self.answer.status_code == 200, self.answer.read()
        assert self.answer.headers["content-type"].startswith("text/event-stream")
        while next(self.lines) != "":  # the greeting: from here on everything is heard
            pass

    def next(self) -> Told:
        fields: dict[str, str] = {}
        for line in self.lines:
            if line.startswith(":"):
                continue
            if line == "" and fields:
                return Told(fields["event"], json.loads(fields["data"]), fields.get("id"))
            name, _, value = line.partition(": ")
            if name:
                fields[name] = value
        raise EOFError

    def rest(self) -> list[Told]:
        found = []
        try:
            while True:
                found.append(self.next())
        except EOFError:
            return found


@contextmanager
def listening(client: httpx.Client, headers: dict[str, str] | None = None, **params: Any) -> Iterator[Ear]:
    with client.stream("GET", STREAM, params=params, headers=headers) as answer:
        yield Ear(answer)


def test_every_transition_is_told_once_and_only_to_who_asked(served: Served, client: httpx.Client, queue: str) -> None:
    served.enqueue(queue)  # before anybody listens
    with listening(client, queue=queue) as ear, served.client("viewer") as viewer:
        other = f"{queue}-other"
        with listening(viewer, queue=[queue, other]) as both:
            [theirs] = served.enqueue(other)
            [job_id] = served.enqueue(queue)
            served.store.claim_job("ann", job_id)
            served.store.cancel([job_id])
            told = [ear.next() for _ in range(3)]
            assert [(item.data["job_id"], item.data["event"]) for item in told] == [
                (job_id, "enqueued"),
                (job_id, "claimed"),
                (job_id, "cancel_requested"),
            ]
            assert {item.event for item in told} == {"transition"}
            first = told[0].data
            assert (first["task"], first["queue"], first["seq"], first["to_state"]) == ("send", queue, 1, "pending")
            assert "lease" not in first
            heard = {(item.data["job_id"], item.data["seq"]) for item in (both.next() for _ in range(4))}
            assert heard == {(theirs, 1), (job_id, 1), (job_id, 2), (job_id, 3)}


def test_a_stream_of_one_job_or_task(served: Served, client: httpx.Client, queue: str) -> None:
    ids = served.enqueue(queue, 2)
    with listening(client, job=ids[1]) as ear:
        served.store.cancel(ids)
        assert ear.next().data["job_id"] == ids[1]
    with listening(client, task=["nobody", "other"], queue=queue) as ear:
        served.enqueue(queue)
        wanted = served.store.enqueue(NewJob(task="other", queue=queue)).id
        assert ear.next().data["job_id"] == wanted, "what came before it was of another task"


def test_a_client_that_was_cut_off_goes_on_where_it_was(served: Served, client: httpx.Client, queue: str) -> None:
    with listening(client, queue=queue) as ear:
        first = served.enqueue(queue)
        last = ear.next()
    assert last.id is not None
    missed = served.enqueue(queue, 3)
    with listening(client, {"Last-Event-ID": last.id}, queue=queue, seconds=0) as ear:
        told = [item.data["job_id"] for item in ear.rest()]
    assert sorted(told) == sorted([*first, *missed]), "those of the last seconds come once more, each once"


def test_who_was_away_for_too_long_is_told_of_the_gap(
    served: Served, client: httpx.Client, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = datetime.now(UTC)
    ids = served.enqueue(queue, 5)
    hours_ago = datetime.now(UTC) - timedelta(hours=5)
    place = f"{int(hours_ago.timestamp() * 1e6)}.{uuid.uuid4()}.1"
    with listening(client, {"Last-Event-ID": place}, queue=queue, seconds=0) as ear:
        told = ear.rest()
    assert (told[0].event, len(told)) == ("gap", 6)
    monkeypatch.setattr(speaking, "MOST_LOOKED_BACK", 2)
    place = f"{int(before.timestamp() * 1e6)}.{uuid.uuid4()}.1"
    with listening(client, {"Last-Event-ID": place}, seconds=0) as ear:
        told = ear.rest()
    assert [item.event for item in told] == ["transition", "transition", "gap"]
    assert len(ids) == 5


def test_a_slow_reader_is_told_of_a_gap_and_costs_no_more(served: Served, queue: str) -> None:
    """Its line holds so many; what is in it when the next one comes is lost, and what came last is told."""
    listener = live.Listener(lambda _transition: True)
    served.enqueue(queue, 60)
    page = served.store.feed(FeedPlace(datetime.now(UTC) - timedelta(minutes=5)), 60)
    rounds = live.LINE_LENGTH // len(page.items) + 1
    for _ in range(rounds):
        for item in page.items:
            listener.tell(item)
    assert len(listener.line) <= live.LINE_LENGTH
    lost, told = listener.take()
    assert lost + len(told) == rounds * len(page.items)
    assert lost == live.LINE_LENGTH
    assert told[-1] == page.items[-1]


def test_wrong_questions_are_refused(served: Served, client: httpx.Client, queue: str) -> None:
    for given in ({"Last-Event-ID": "yesterday"}, {"Last-Event-ID": "1.2.3"}):
        assert client.get(STREAM, headers=given).status_code == 422
    assert client.get(STREAM, params={"job": "nothing"}).status_code == 422
    assert client.get(STREAM, params={"seconds": -1}).status_code == 422
    assert http.get(served.url + STREAM).status_code == 401
    with served.client("worker") as worker:
        assert worker.get(STREAM).status_code == 403
    with served.client(token=served.new_token("viewer", queues=(queue,))) as limited:
        assert limited.get(STREAM, params={"queue": f"{queue}-other"}).status_code == 403


def test_a_token_of_some_queues_hears_only_them(served: Served, queue: str) -> None:
    with (
        served.client(token=served.new_token("viewer", queues=(queue,))) as limited,
        listening(limited) as ear,
    ):
        served.enqueue(f"{queue}-other")
        [ours] = served.enqueue(queue)
        assert ear.next().data["job_id"] == ours, "what came before it was of another queue"


def test_a_revoked_token_ends_its_stream(served: Served, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speaking, "CHECK_TOKEN_SECONDS", 0.0)
    token = served.new_token("viewer")
    with served.client(token=token) as revoked, listening(revoked, queue=queue) as ear:
        served.enqueue(queue)
        ear.next()
        [name] = [found.name for found in served.store.tokens() if found.id in token]
        served.store.revoke_token(name)
        served.enqueue(queue)
        assert ear.rest() == []


def test_many_who_listen_share_one_reader_that_rests_when_they_have_gone(
    served: Served, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[FeedPlace | None] = []
    stopped: list[asyncio.Task[None]] = []
    real, real_leave = SqlStore.feed, live.LiveFeed.leave

    def counted(store: SqlStore, after: FeedPlace | None, limit: int = 1000) -> FeedPage:
        looks.append(after)
        return real(store, after, limit)

    def leave(feed: live.LiveFeed, listener: live.Listener) -> None:
        reader = feed._reader
        real_leave(feed, listener)
        if reader is not None and feed._reader is None:
            stopped.append(reader)

    monkeypatch.setattr(SqlStore, "feed", counted)
    monkeypatch.setattr(live.LiveFeed, "leave", leave)
    with (
        served.client("viewer") as client,
        listening(client, queue=queue) as a,
        listening(client, queue=queue) as b,
        listening(client, queue=queue) as c,
    ):
        started = time.monotonic()
        looks.clear()
        served.enqueue(queue)
        assert len({ear.next().id for ear in (a, b, c)}) == 1
        assert len(looks) <= (time.monotonic() - started) / live.LOOK_EVERY_SECONDS + 1
    # The server notices later that they have gone. Without a listener it has no reader.
    wait_until(lambda: bool(stopped) and stopped[-1].done(), what="the reader ends")


@pytest.mark.parametrize("every", [0.0, 3600.0])
def test_what_committed_late_is_found_by_a_look_that_reaches_further_now_and_then(
    monkeypatch: pytest.MonkeyPatch, every: float
) -> None:
    monkeypatch.setattr(live, "REACH_FURTHER_EVERY_SECONDS", every)
    monkeypatch.setattr(live, "LOOK_EVERY_SECONDS", 0.0)
    now, places = datetime(2026, 1, 1, tzinfo=UTC), list[FeedPlace | None]()

    async def read(place: FeedPlace | None, _limit: int) -> FeedPage:
        places.append(place)
        if len(places) == 5:
            looked.set()
        return FeedPage(now, (), more=False)

    async def story() -> None:
        feed = live.LiveFeed(read)
        listener = await feed.listen(lambda _transition: True)
        await looked.wait()
        feed.leave(listener)

    looked = asyncio.Event()
    asyncio.run(asyncio.wait_for(story(), DEADLINE_SECONDS))
    reach = live.REACH_FURTHER_BACK if every == 0.0 else live.REACH_BACK
    begin = [None, FeedPlace(now - live.REACH_FURTHER_BACK)]
    assert places[:5] == [*begin, *[FeedPlace(now - reach)] * 3]


def test_one_credential_cannot_take_all_the_places_there_are(
    served: Served, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MOST_OF_ONE", 2)
    with served.client(token=served.new_token("viewer")) as greedy, served.client("viewer") as other:

        def asked() -> httpx.Response:
            return greedy.get(STREAM, params={"seconds": 0})

        with listening(greedy, queue=queue) as first, listening(greedy, queue=queue) as second:
            refused = asked()
            assert refused.status_code == 503
            assert "retry-after" in refused.headers
            assert "this credential has 2 streams open" in refused.json()["detail"]
            with listening(other, queue=queue) as third:  # nobody else is held up
                [job_id] = served.enqueue(queue)
                assert [ear.next().data["job_id"] for ear in (first, second, third)] == [job_id] * 3
        wait_until(lambda: asked().status_code == 200, what="the places of those who left are free")


def test_a_stopping_server_ends_its_streams(served_database: str) -> None:
    with serving(served_database) as served, served.client("viewer") as client, listening(client) as ear:
        stopping = threading.Thread(target=served.control.stop)
        stopping.start()
        assert ear.rest() == []
        stopping.join()
