"""Long polls: many wait and cost nothing, one job has one winner, and who has gone gets none."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any, cast

import httpx
import pytest

from holdfast.domain.errors import RequestBusy, StoreUnavailable
from holdfast.domain.job import Claimed
from holdfast.domain.lifecycle import State
from holdfast.serve import lines, repeats
from holdfast.serve.budget import Budget
from holdfast.serve.hub import Hub
from holdfast.serve.lines import Found, Line, Poll, Waiter, Wanted
from holdfast.serve.problems import Refused
from holdfast.stores.sql_store import SqlStore
from tests.chaos.proxy import ForgetfulProxy
from tests.serve import http
from tests.serve.grounds import Served, serving
from tests.serve.raw import call, calls, until
from tests.serve.speaking import claim, lease, say
from tests.servers.waiting import DEADLINE_SECONDS

WAITERS = 500
# One claim that finds the job, and those that find the line empty after it. Polls come on top, by the time that passed.
HANDFUL = 6


def hub(served: Served) -> Hub:
    assert served.control.plane is not None
    return served.control.plane.hub


class Watched:
    """Every claim of this process's stores is counted; while `held` is set its answer is kept back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.under_way = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()
        real = SqlStore.claim

        def watched(store: SqlStore, *arguments: Any, **named: Any) -> Any:
            self.count += 1
            found = real(store, *arguments, **named)
            if found:
                self.under_way.set()
                assert self.go_on.wait(DEADLINE_SECONDS)
            return found

        monkeypatch.setattr(SqlStore, "claim", watched)


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    watched = Watched(monkeypatch)
    yield watched
    watched.go_on.set()


def test_five_hundred_wait_for_one_job(served: Served, queue: str, claims: Watched) -> None:
    async def story() -> None:
        asked = {"streams": [queue], "max_wait_ms": 60_000}
        async with calls(WAITERS, served.url, served.tokens["worker"], "claim", **asked) as waiting:
            await until(lambda: hub(served).waiting == WAITERS, "all of them wait")
            claims.count, began = 0, time.monotonic()
            [job_id] = served.enqueue(queue)
            answers = [asyncio.ensure_future(one.answer()) for one in waiting]
            done, others = await asyncio.wait(answers, timeout=DEADLINE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            [(status, answer)] = [task.result() for task in done]
            assert (status, answer["job_id"]) == (200, job_id)
            assert hub(served).waiting == WAITERS - 1
            # Timers never fire early: a slow machine has fewer polls in the same time.
            assert claims.count <= HANDFUL + (time.monotonic() - began) / lines.FIRST_WAIT_SECONDS
            for task in others:
                task.cancel()
        await until(lambda: hub(served).waiting == 0, "who has gone does not wait")

    asyncio.run(story())
    [after] = served.enqueue(queue)
    assert served.store.job(after).state is State.PENDING, "nobody claims for clients that have gone"


def test_a_backlog_goes_to_those_who_wait_each_job_once(served: Served, queue: str) -> None:
    async def story() -> None:
        asked = {"streams": [queue], "max_wait_ms": 60_000}
        async with calls(20, served.url, served.tokens["worker"], "claim", **asked) as waiting:
            await until(lambda: hub(served).waiting == 20, "all of them wait")
            ids = served.enqueue(queue, 20)
            answers = await asyncio.gather(*(one.answer() for one in waiting))
            assert sorted(answer["job_id"] for _status, answer in answers) == sorted(ids)

    asyncio.run(story())


def test_a_wait_ends_with_the_first_job_or_with_its_time(served: Served, worker: httpx.Client, queue: str) -> None:
    answer = say(worker, "claim", streams=[queue], max_wait_ms=200)
    assert (answer["claimed"], answer["waited_ms"] >= 150) == (False, True)

    async def story() -> None:
        one = await call(served.url, served.tokens["worker"], "claim", streams=[queue], max_wait_ms=60_000)
        await until(lambda: hub(served).waiting == 1, "it waits")
        served.enqueue(queue)
        status, found = await one.answer()
        assert (status, found["claimed"]) == (200, True)
        one.hang_up()

    asyncio.run(story())


def test_a_job_claimed_for_a_client_that_has_gone_is_given_back(served: Served, queue: str, claims: Watched) -> None:
    async def story() -> None:
        claims.go_on.clear()
        one = await call(served.url, served.tokens["worker"], "claim", streams=[queue], max_wait_ms=60_000)
        await until(claims.under_way.is_set, "its claim is committed, and the answer on its way")
        before = served.control.connections
        one.hang_up()
        await until(lambda: served.control.connections < before, "the server has seen the connection close")
        claims.go_on.set()
        await until(lambda: served.store.job(job_id).transition == "released", "the job is given back")

    [job_id] = served.enqueue(queue)
    asyncio.run(story())
    job = served.store.job(job_id)
    assert (job.state, job.failures, job.crashes) == (State.PENDING, 0, 0)


def test_with_a_request_id_the_client_can_ask_for_it_again(
    served: Served, worker: httpx.Client, queue: str, claims: Watched
) -> None:
    async def story() -> None:
        claims.go_on.clear()
        asked = {"streams": [queue], "max_wait_ms": 60_000, "request_id": f"again-{queue}"}
        one = await call(served.url, served.tokens["worker"], "claim", **asked)
        await until(claims.under_way.is_set, "its claim is committed, and the answer on its way")
        one.hang_up()
        claims.go_on.set()
        again = await call(served.url, served.tokens["worker"], "claim", **asked)
        status, found = await again.answer()
        assert (status, found["job_id"]) == (200, job_id)
        again.hang_up()
        assert say(worker, "complete", **lease(found), result=None)["ok"]

    [job_id] = served.enqueue(queue)
    asyncio.run(story())
    assert [event.event for event in served.store.events(job_id)] == ["enqueued", "claimed", "succeeded"]


def test_jobs_of_a_client_that_never_gets_its_answers_are_given_back(
    served: Served, worker: httpx.Client, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a proxy that is always late, repeats renewed the leases of jobs that nobody ran, without end."""
    [job_id] = served.enqueue(queue)
    asked: dict[str, Any] = {"streams": [queue], "request_id": f"late-{queue}"}
    for _ in range(5):
        assert say(worker, "claim", **asked)["job_id"] == job_id
    monkeypatch.setattr(repeats, "REPEATED_SECONDS", 0.0)
    assert not say(worker, "claim", **asked)["claimed"]
    asyncio.run(until(lambda: served.store.job(job_id).transition == "released", "the job is given back"))
    job = served.store.job(job_id)
    assert (job.state, job.failures, job.crashes) == (State.PENDING, 0, 0)
    assert not say(worker, "claim", **asked)["claimed"]
    assert claim(worker, queue)["job_id"] == job_id


def test_a_store_that_fails_is_waited_out(served: Served, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A poll goes on waiting through an outage; one that does not wait is told."""
    away = threading.Event()
    real = SqlStore.claim

    def claim_or_fail(store: SqlStore, *arguments: Any, **named: Any) -> Any:
        if away.is_set():
            raise StoreUnavailable("gone fishing")
        return real(store, *arguments, **named)

    monkeypatch.setattr(SqlStore, "claim", claim_or_fail)
    away.set()

    async def story() -> None:
        patient = await call(served.url, served.tokens["worker"], "claim", streams=[queue], max_wait_ms=60_000)
        await until(lambda: hub(served).waiting == 1, "it waits")
        hasty = await call(served.url, served.tokens["worker"], "claim", streams=[queue])
        status, problem = await hasty.answer()
        assert (status, problem["title"]) == (503, "The store is away")
        hasty.hang_up()
        [job_id] = served.enqueue(queue)
        away.clear()
        status, found = await patient.answer()
        assert (status, found["job_id"]) == (200, job_id)
        patient.hang_up()

    asyncio.run(story())


def test_two_control_planes_over_one_store(served: Served, worker: httpx.Client, queue: str) -> None:
    """Both wait under one request id, as after a retry at the second: whichever wins, both are given the same job."""
    with serving(served.database_url) as second:

        async def story() -> None:
            asked = {"streams": [queue], "max_wait_ms": 60_000, "request_id": f"both-{queue}"}
            token = served.tokens["worker"]
            both = [await call(one.url, token, "claim", **asked) for one in (served, second)]
            await until(lambda: hub(served).waiting == hub(second).waiting == 1, "both wait")
            [job_id] = served.enqueue(queue)
            answers = [await one.answer() for one in both]
            assert [answer["job_id"] for _status, answer in answers] == [job_id, job_id]
            assert len({answer["lease_token"] for _status, answer in answers}) == 1
            for one in both:
                one.hang_up()

        asyncio.run(story())
        with http.client(base_url=second.url, headers=worker.headers, verify=False) as other:
            served.enqueue(queue)
            job = claim(worker, queue)
            assert say(other, "complete", **lease(job), result=1)["ok"]
            assert say(worker, "complete", **lease(job), result=1)["ok"]
    [claimed] = [event for event in served.store.events(job["job_id"]) if event.event == "succeeded"]
    assert claimed.worker == "tester"


def test_a_request_whose_jobs_are_over_waits_its_time_for_nothing(
    served: Served, worker: httpx.Client, queue: str
) -> None:
    served.enqueue(queue, 2)
    job = claim(worker, queue, request_id=f"over-{queue}")
    say(worker, "complete", **lease(job), result=1)
    answer = say(worker, "claim", streams=[queue], request_id=f"over-{queue}", max_wait_ms=200)
    assert (answer["claimed"], answer["waited_ms"] >= 150) == (False, True)


def test_a_request_sent_twice_waits_as_long_as_each_was_given(served: Served, queue: str) -> None:
    async def story() -> None:
        asked = {"streams": [queue], "request_id": f"twice-{queue}"}
        token = served.tokens["worker"]
        long = await call(served.url, token, "claim", **asked, max_wait_ms=60_000)
        await until(lambda: hub(served).waiting == 1, "it waits")
        short = await call(served.url, token, "claim", **asked, max_wait_ms=200)
        status, answer = await short.answer()
        assert (status, answer["claimed"], hub(served).waiting) == (200, False, 1)
        [job_id] = served.enqueue(queue)
        status, answer = await long.answer()
        assert (status, answer["job_id"]) == (200, job_id)
        for one in (long, short):
            one.hang_up()

    asyncio.run(story())


class Asked:
    """A line whose questions are answered when the test likes: it is told apart by worker."""

    def __init__(self) -> None:
        self.answers: dict[str, asyncio.Future[list[Claimed]]] = {}
        self.late: list[str] = []
        self.line = Line(self._ask, lambda wanted, _jobs: self.late.append(wanted.worker), 0.05, 4)

    async def _ask(self, wanted: Wanted) -> Found:
        self.answers[wanted.worker] = asyncio.get_running_loop().create_future()
        return Found(await self.answers[wanted.worker], 0.0)

    def poll(self, name: str, *, due: bool = False) -> asyncio.Future[Found]:
        waiter = Waiter(Wanted(name, 2, None, None, "credential"))
        poll = Poll(asyncio.get_running_loop().create_future(), due)
        self.line.join(waiter, poll)
        if due:
            self.line.time_is_over(waiter, poll)
        return poll.future


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "SLOW_SECONDS", 0.05)


JOB = Claimed(str(uuid.uuid4()), "send", None, "default", None, "{}", 1, 0, 0, 3, 3, None, 60.0, None, "token")


@pytest.mark.usefixtures("impatient")
def test_a_claim_that_hangs_holds_up_nobody_else() -> None:
    async def story() -> None:
        asked = Asked()
        stuck = asked.poll("stuck")
        next_one = asked.poll("next")
        await until(lambda: "next" in asked.answers, "the next is asked for beside it")
        asked.answers["next"].set_result([JOB])
        assert (await next_one).jobs == [JOB]
        asked.poll("stuck too")
        await until(lambda: "stuck too" in asked.answers, "and the one after it")
        behind = asked.poll("behind", due=True)
        with pytest.raises(StoreUnavailable):
            await behind  # half of the threads hang by now: it is told instead of asked for
        assert "behind" not in asked.answers
        asked.answers["stuck"].set_result([JOB])
        assert (await stuck).jobs == [JOB]
        asked.answers["stuck too"].set_result([])

    asyncio.run(asyncio.wait_for(story(), DEADLINE_SECONDS))


@pytest.mark.usefixtures("impatient")
def test_a_stop_also_answers_who_is_being_claimed_for() -> None:
    async def story() -> None:
        asked = Asked()
        stuck = asked.poll("stuck")
        await until(lambda: "stuck" in asked.answers, "it is asked for")
        asked.line.stop()
        with pytest.raises(StoreUnavailable):
            await stuck
        asked.answers["stuck"].set_result([JOB])
        await until(lambda: asked.late == ["stuck"], "what it claimed is handed on to be given back")

    asyncio.run(asyncio.wait_for(story(), DEADLINE_SECONDS))


def test_a_request_that_is_busy_elsewhere_is_that_polls_alone() -> None:
    async def story() -> None:
        asked = Asked()
        first, second = asked.poll("first"), asked.poll("second")
        await until(lambda: "first" in asked.answers, "it is asked for")
        asked.answers["first"].set_exception(RequestBusy("ask again"))
        with pytest.raises(Refused, match="ask again"):
            await first
        await until(lambda: "second" in asked.answers, "the other is asked for at once")
        asked.answers["second"].set_result([JOB])
        assert (await second).jobs == [JOB]

    asyncio.run(asyncio.wait_for(story(), DEADLINE_SECONDS))


class FailingBudget:
    """Of which every call fails."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def call(self, _act: object) -> None:
        raise self._error


@pytest.mark.parametrize("error", [ZeroDivisionError("lost"), RequestBusy("ask again")], ids=["lost", "busy"])
@pytest.mark.parametrize("request_id", [None, "again"])
def test_an_answer_that_was_lost_is_looked_for_where_the_client_cannot_ask_again(
    monkeypatch: pytest.MonkeyPatch, error: Exception, request_id: str | None
) -> None:
    async def story() -> None:
        budget = cast(Budget, FailingBudget(error))
        hub = Hub(budget, budget, 3600.0)
        lost: list[Wanted] = []
        monkeypatch.setattr(hub._giving_back, "answer_lost", lost.append)
        wanted = Wanted("ann", 1, None, None, "credential", request_id)
        with pytest.raises(type(error), match=str(error)):
            await hub._ask(wanted)
        assert lost == ([wanted] if request_id is None and not isinstance(error, RequestBusy) else [])

    asyncio.run(story())


def test_a_line_looks_again_when_a_source_s_token_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not when its interval is over, which is an hour here."""
    monkeypatch.setattr(lines, "FIRST_WAIT_SECONDS", 3600.0)
    answers = [Found([], 0.0, again_in=0.02), Found([], 0.0, again_in=0.0), Found([JOB], 0.0)]

    async def story() -> None:
        async def ask(_wanted: Wanted) -> Found:
            return answers.pop(0)

        line = Line(ask, lambda _wanted, _jobs: None, 3600.0, 4)
        poll = Poll(asyncio.get_running_loop().create_future())
        line.join(Waiter(Wanted("ann", 1, None, None, "credential")), poll)
        assert (await poll.future).jobs == [JOB]

    asyncio.run(asyncio.wait_for(story(), DEADLINE_SECONDS))


@pytest.mark.parametrize("served_database", ["postgres"], indirect=True)
def test_a_claim_whose_answer_the_database_lost_is_given_back(served_database: str, queue: str) -> None:
    """The poll knows nothing of it: it waits on, and is given the job when it has come back."""
    with ForgetfulProxy(served_database) as proxy, serving(proxy.url) as served, served.client("worker") as worker:
        say(worker, "claim", streams=[queue])  # its connections are open
        [job_id] = served.enqueue(queue)
        proxy.lose_answer_to(b"holdfast_claim(")
        job = claim(worker, queue, max_wait_ms=60_000)
        assert proxy.lost == 1
        assert (job["job_id"], job["attempt"]) == (job_id, 2)
        events = [event.event for event in served.store.events(job_id)]
        assert events == ["enqueued", "claimed", "released", "claimed"]
        assert served.store.job(job_id).crashes == 0
