"""What a running job asks the engine for: records, sources, the cache. Run by `app.work()`, on a real store."""

import asyncio
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    App,
    Cancel,
    ConfigurationError,
    Context,
    Handle,
    InvalidInput,
    JobFailed,
    LeaseLost,
    Permanent,
    RetryAfter,
    Snooze,
    State,
)
from holdfast.domain.record import Record
from holdfast.domain.sources import Breaker
from holdfast.domain.views import SourceView
from tests.servers.waiting import DEADLINE_SECONDS


@dataclass
class Coin:
    title: str
    price: Decimal


class Response:
    """As httpx and requests have it."""

    def __init__(self, status: int, **headers: str) -> None:
        self.status_code = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class HttpError(Exception):
    def __init__(self, response: Response) -> None:
        super().__init__(f"status {response.status_code}")
        self.response = response


def kept(app: App, **wanted: Any) -> list[Record]:
    return list(app.store.records(**wanted).items)


def source(app: App, name: str) -> SourceView:
    return next(view for view in app.sources() if view.name == name)


def events(app: App, name: str) -> list[str]:
    return [event.event for event in app.store.source_events(name).items]


def said(app: App, handle: Handle[Any]) -> str:
    return "\n".join(line.message for line in app.store.logs(handle.id))


# records


def test_a_job_keeps_records_and_is_told_what_became_of_them(app: App) -> None:
    @app.task
    def collect(ctx: Context) -> list[str]:
        first = ctx.record("coins", "ebay", Coin("Penny", Decimal("12.50")), strength=1)
        weaker = ctx.record("coins", "ebay", {"title": " penny ", "price": "12.50", "seen": date(2030, 1, 2)})
        many = ctx.record_many(
            [
                {"scope": "coins", "source": "ebay", "data": {}, "external_id": "7"},
                {"scope": "coins", "source": "ebay", "data": {"title": "penny", "price": 12.5}, "strength": 2},
            ]
        )
        assert first.id == weaker.id == many[1].id
        single = [ctx.upsert_single("best", {"price": price}) for price in (3, 1)]
        assert single[0].id == single[1].id
        return [str(written.kept) for written in (first, weaker, *many, *single)]

    handle = collect.enqueue()
    app.work()

    assert handle.result(0) == ["created", "existing", "created", "replaced", "created", "replaced"]
    found = {record.dedupe_key: record for record in kept(app, scope="coins")}
    assert found["ext_7"].job_id == handle.id
    assert [record.data for key, record in found.items() if key != "ext_7"] == [{"title": "penny", "price": 12.5}]
    assert [record.data for record in kept(app, scope="best")] == [{"price": 1}]


def test_coroutines_keep_records(app: App) -> None:
    @app.task
    async def collect(ctx: Context) -> int:
        written = await asyncio.gather(
            *(ctx.arecord("s", "a", {"title": str(n)}) for n in range(5)),
            ctx.aupsert_single("s", {"n": 1}),
        )
        written += await ctx.arecord_many([{"scope": "s", "source": "b", "data": {"title": "x"}}])
        return len({one.id for one in written})

    handle = collect.enqueue()
    app.work()
    assert handle.result(0) == 7
    assert len(kept(app, scope="s")) == 7


def test_what_is_wrong_with_a_record_is_said_before_anything_is_kept(app: App) -> None:
    @app.task
    def collect(ctx: Context) -> list[str]:
        problems = []
        good = {"scope": "s", "source": "a", "data": {"title": "good"}}
        for wrong in (
            {**good, "data": {"title": "x", "thing": object()}},
            {**good, "data": {"title": float("nan")}},
            {**good, "strength": float("inf")},
            {**good, "scope": ""},
            {**good, "colour": "red"},
            {"scope": "s", "source": "a"},
        ):
            with pytest.raises(InvalidInput) as caught:
                ctx.record_many([good, wrong])
            problems.append(caught.value.field)
        with pytest.raises(InvalidInput, match=r"^data"):
            ctx.record("s", "a", {"title": "x", "thing": object()})
        assert ctx.record_many([]) == []
        return problems

    handle = collect.enqueue()
    app.work()
    fields = handle.result(0)
    assert [field.partition(".")[0] for field in fields] == ["records[1]"] * 6
    assert fields[2:] == ["records[1].strength", "records[1].scope", "records[1].colour", "records[1].data"]
    assert kept(app) == []


def test_a_job_that_lost_its_lease_keeps_no_record_and_enters_no_source(app: App) -> None:
    app.set_source("shop", max_concurrent=5)

    @app.task(max_attempts=1)
    def linger(ctx: Context) -> list[str]:
        with ctx.source("shop"):
            ctx.record("s", "a", {"title": "before"})
        take_lease_away(app, ctx)
        with pytest.raises(LeaseLost):
            ctx.record("s", "a", {"title": "after"})
        with pytest.raises(LeaseLost), ctx.source("shop"):
            raise AssertionError("nobody gets here")
        raise Cancel

    handle = linger.enqueue()
    app.work()
    assert [record.data for record in kept(app)] == [{"title": "before"}]
    assert {"record", "source"} <= {refusal.verb for refusal in app.store.refusals(handle.id)}


def take_lease_away(app: App, ctx: Context) -> None:
    """The reaper finds the lease expired; what it does is what any other worker would do."""
    from sqlalchemy import text

    with app.store.database.engine.begin() as connection:  # type: ignore[attr-defined]
        connection.execute(
            text("UPDATE holdfast_jobs SET lease_expires_at = '2020-01-01 00:00:00.000000' WHERE id = :id"),
            {"id": ctx.job.id},
        )
    app.store.reap("other", period=0.0)


# sources


def test_the_first_entry_to_the_jobs_own_source_is_paid_for(app: App) -> None:
    app.source("shop", rate="1/h", burst=1)

    @app.task(source="shop")
    def fetch(ctx: Context) -> str:
        with ctx.source("shop", max_wait=0), ctx.source("shop", max_wait=0):
            pass  # the inner one is a part of the outer one
        with ctx.source("shop", max_wait="1s"):
            return "twice"

    handle = fetch.enqueue()
    assert app.work() == 1
    assert handle.job().state is State.PENDING, "the second entry needs a token, and there is none for an hour"
    assert handle.job().failures == 0
    assert "source shop: rate" in str(app.store.events(handle.id)[-1].detail)
    assert source(app, "shop").rate_limit_per_minute == pytest.approx(1 / 60)


def test_a_place_that_becomes_free_is_waited_for(app: App) -> None:
    app.set_source("shop", max_concurrent=1)
    inside, waiting = threading.Event(), threading.Event()

    @app.task
    def fetch(ctx: Context) -> list[str]:
        order: list[str] = []

        def first() -> None:
            with ctx.source("shop"):
                inside.set()
                assert waiting.wait(DEADLINE_SECONDS)
                order.append("first")

        def second() -> None:
            assert inside.wait(DEADLINE_SECONDS)
            guard = ctx.source("shop", max_wait="10m")
            waiting.set()
            with guard:
                order.append("second")

        with ThreadPoolExecutor(2) as threads:
            for done in [threads.submit(first), threads.submit(second)]:
                done.result()
        return order

    handle = fetch.enqueue()
    app.work()
    assert handle.result(0) == ["first", "second"]


def test_coroutines_take_turns_in_a_source(app: App) -> None:
    app.set_source("shop", max_concurrent=1)

    @app.task
    async def fetch(ctx: Context) -> int:
        inside, most = 0, 0
        guard = ctx.source("shop", max_wait="10m")

        async def one() -> None:
            nonlocal inside, most
            async with guard:
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= 1

        await asyncio.gather(*(one() for _ in range(3)))
        return most

    handle = fetch.enqueue()
    app.work()
    assert handle.result(0) == 1


def test_who_gives_up_entering_holds_no_place(app: App) -> None:
    app.set_source("shop", max_concurrent=1)

    @app.task
    async def fetch(ctx: Context) -> str:
        entering = asyncio.create_task(ctx.source("shop").__aenter__())
        await asyncio.sleep(0)  # it has asked, and nobody will hear the answer
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
        async with ctx.source("shop", max_wait="10m"):
            return "in"

    handle = fetch.enqueue()
    app.work()
    assert handle.result(0) == "in"


@pytest.mark.parametrize("kind", ["thread", "coroutine"])
def test_a_cancel_ends_the_waiting(app: App, kind: str) -> None:
    app.set_source("shop", max_concurrent=0)

    @app.task(name="thread")
    def wait_here(ctx: Context) -> None:
        threading.Timer(0.05, ctx.request_cancel, ("cancel_requested",)).start()
        with ctx.source("shop", max_wait="10m"):
            raise AssertionError("nobody gets in")

    @app.task(name="coroutine")
    async def wait_there(ctx: Context) -> None:
        threading.Timer(0.05, ctx.request_cancel, ("cancel_requested",)).start()
        async with ctx.source("shop", max_wait="10m"):
            raise AssertionError("nobody gets in")

    handle = (wait_here if kind == "thread" else wait_there).enqueue()
    app.work()
    assert handle.job().state is State.CANCELLED


def test_a_lost_lease_ends_the_waiting(app: App) -> None:
    app.set_source("shop", max_concurrent=0)
    caught: list[BaseException] = []

    @app.task(max_attempts=1)
    def wait(ctx: Context) -> None:
        threading.Timer(0.05, ctx.lose_lease).start()
        try:
            with ctx.source("shop", max_wait="10m"):
                raise AssertionError("nobody gets in")
        except LeaseLost as error:
            caught.append(error)
            raise

    wait.enqueue()
    app.work()
    assert len(caught) == 1


def test_a_source_that_takes_longer_than_one_would_wait_snoozes_the_job_at_once(app: App) -> None:
    app.set_source("shop", rate="1/h", burst=1)

    @app.task
    def fetch(ctx: Context) -> str:
        with ctx.source("shop"):
            pass
        with ctx.source("shop", max_wait="59m"):
            return "never"

    handle = fetch.enqueue()
    assert app.work() == 1
    job = handle.job()
    assert (job.state, job.failures, job.crashes) == (State.PENDING, 0, 0)
    assert (job.run_after - job.created_at).total_seconds() > 3500


def in_use(app: App, name: str) -> int:
    return app.store.source(name).in_use


def test_a_task_that_outlives_the_block_it_was_created_in_enters_for_itself(app: App) -> None:
    app.set_source("shop", max_concurrent=1)

    @app.task
    async def fetch(ctx: Context) -> list[Any]:
        left, seen, inside = asyncio.Event(), [], 0
        guard = ctx.source("shop", max_wait="10m")

        async def later(shop: Any) -> None:
            nonlocal inside
            await left.wait()
            async with shop:
                inside += 1
                seen.append((inside, in_use(app, "shop")))
                await asyncio.sleep(0)
                inside -= 1

        async with guard:
            tasks = [asyncio.create_task(later(shop)) for shop in (guard, guard, ctx.source("shop", max_wait="10m"))]
        left.set()
        await asyncio.gather(*tasks)
        return [seen, in_use(app, "shop")]

    handle = fetch.enqueue()
    app.work()
    assert handle.result(0) == [[[1, 1]] * 3, 0]


@pytest.mark.parametrize("shared", [True, False])
def test_the_last_one_out_leaves_and_nobody_joins_once_the_outer_block_has_ended(app: App, shared: bool) -> None:
    app.set_source("shop", breaker_threshold=9)

    @app.task
    async def fetch(ctx: Context, shared: bool) -> list[int]:
        guard = ctx.source("shop")
        entered, go = asyncio.Event(), asyncio.Event()

        async def beside() -> None:
            async with guard if shared else ctx.source("shop"):
                entered.set()
                await go.wait()

        counts = []
        try:
            async with guard:
                task = asyncio.create_task(beside())
                await entered.wait()
                counts.append(in_use(app, "shop"))
                raise ValueError("outer")
        except ValueError:
            counts.append(in_use(app, "shop"))
        async with guard:
            counts.append(in_use(app, "shop"))
        go.set()
        await task
        return [*counts, in_use(app, "shop"), source(app, "shop").failure_streak]

    handle = fetch.enqueue(shared)
    app.work()
    assert handle.result(0) == [1, 1, 2, 0, 1], "what the outer block says counts, and is told by the last one out"


def test_blocks_that_end_in_any_order_or_in_another_context_hold_nothing(app: App) -> None:
    app.set_source("shop", max_concurrent=1)

    @app.task
    def fetch(ctx: Context) -> list[int]:
        one, two = ctx.source("shop"), ctx.source("shop")
        one.__enter__()
        two.__enter__()
        one.__exit__(None, None, None)
        counts = [in_use(app, "shop")]
        two.__exit__(None, None, None)
        counts.append(in_use(app, "shop"))

        one.__enter__()
        contextvars.Context().run(one.__exit__, None, None, None)
        counts.append(in_use(app, "shop"))
        with ctx.source("shop"):
            counts.append(in_use(app, "shop"))  # it has entered, and is no part of the one before

        one.__enter__()
        two.__enter__()
        copies = [contextvars.copy_context() for _ in range(2)]
        copies[0].run(two.__exit__, None, None, None)
        copies[1].run(one.__exit__, None, None, None)
        one.__exit__(None, None, None)  # once too often
        return [*counts, in_use(app, "shop")]

    handle = fetch.enqueue()
    app.work()
    assert handle.result(0) == [1, 0, 0, 1, 0]


def test_an_error_counts_for_the_source_of_the_innermost_block_and_no_other(app: App) -> None:
    for name in ("own", "outer", "inner"):
        app.set_source(name, breaker_threshold=9)

    @app.task(source="own", max_attempts=1)
    async def fetch(ctx: Context, how: str) -> None:
        again = ValueError("the very same")
        match how:
            case "nested":
                async with ctx.source("outer"), ctx.source("inner"):
                    raise ValueError
            case "in a group":
                async with ctx.source("outer"), asyncio.TaskGroup() as group:
                    group.create_task(in_inner(ctx, ValueError()))
            case "as the cause":
                try:
                    await in_inner(ctx, again)
                except ValueError as error:
                    raise KeyError from error
            case "for good":
                try:
                    await in_inner(ctx, again)
                except ValueError as error:
                    raise Permanent(error) from None
            case "own inside another":
                async with ctx.source("outer"), ctx.source("own"):
                    raise ValueError
            case "another one afterwards":
                with pytest.raises(ValueError, match="same"):
                    await in_inner(ctx, again)
                raise KeyError
            case "twice":
                with pytest.raises(ValueError, match="same"):
                    await in_inner(ctx, again)
                await in_inner(ctx, again)

    async def in_inner(ctx: Context, error: Exception) -> None:
        async with ctx.source("inner"):
            raise error

    def after(how: str) -> tuple[int, int, int]:
        before = {view.name: view.failure_streak for view in app.sources()}
        handle = fetch.enqueue(how)
        app.work()
        assert handle.job().state is State.FAILED
        added = {view.name: view.failure_streak - before[view.name] for view in app.sources()}
        for name in added:
            app.resume_source(name)
        return added["own"], added["outer"], added["inner"]

    assert after("nested") == (0, 0, 1)
    assert after("in a group") == (0, 0, 1)
    assert after("as the cause") == (0, 0, 1)
    assert after("for good") == (0, 0, 1)
    assert after("own inside another") == (1, 0, 0)
    assert after("another one afterwards") == (1, 0, 1)
    assert after("twice") == (0, 0, 2)


def test_who_is_turned_away_does_not_come_back_several_times_a_second(app: App) -> None:
    app.set_source("shop", max_concurrent=0)

    @app.task
    def fetch(ctx: Context) -> None:
        with ctx.source("shop", max_wait=0):
            raise AssertionError("nobody gets in")

    handle = fetch.enqueue()
    assert app.work() == 1
    detail = app.store.events(handle.id)[-1].detail or {}
    assert detail["reason"] == "source shop: concurrency"
    assert 1.0 <= detail["delay_seconds"] <= 1.25


def test_work_waits_for_a_source_that_lets_in_what_is_due_within_a_minute(app: App) -> None:
    app.set_source("shop", rate="10/s")
    app.set_source("closed", rate="1/h")

    @app.task(source="shop")
    def fetch() -> None:
        pass

    handles = [fetch.enqueue() for _ in range(3)]
    rare = [fetch.using(source="closed").enqueue() for _ in range(2)]
    assert app.work() == 4
    assert {handle.job().state for handle in handles} == {State.SUCCEEDED}
    assert sorted(handle.job().state for handle in rare) == [State.PENDING, State.SUCCEEDED]


def test_how_a_block_ends_moves_the_breaker(app: App) -> None:
    app.set_source("shop", breaker_threshold=2, breaker_ignores=["KeyError"])

    @app.task(no_retry=OSError, max_attempts=1)
    def fetch(ctx: Context) -> list[int]:
        streaks = []

        def after(error: BaseException | None) -> None:
            if error is None:
                with ctx.source("shop"):
                    pass
            else:
                with pytest.raises(type(error)) as caught, ctx.source("shop"):
                    raise error
                assert caught.value is error
            streaks.append(source(app, "shop").failure_streak)

        after(ValueError("counts"))
        after(KeyError("is left out"))
        after(Snooze(1))
        after(Cancel())
        after(KeyboardInterrupt())
        after(None)
        after(Permanent(ValueError("counts")))
        after(OSError("counts"))
        return streaks

    handle = fetch.enqueue()
    app.work()
    assert handle.result(0) == [1, 1, 1, 1, 1, 0, 1, 2]
    assert source(app, "shop").breaker is Breaker.OPEN
    assert "breaker_opened" in events(app, "shop")


def test_retry_after_in_a_block_pauses_that_source_and_snoozes_the_job(app: App) -> None:
    for name in ("own", "outer", "inner"):
        app.set_source(name)

    @app.task(source="own")
    def fetch(ctx: Context) -> None:
        with ctx.source("outer"), ctx.source("inner"):
            raise RetryAfter("120")

    handle = fetch.enqueue()
    app.work()
    job = handle.job()
    assert (job.state, job.failures) == (State.PENDING, 0)
    assert 100 < (job.run_after - job.created_at).total_seconds() < 3600
    paused = {view.name for view in app.sources() if view.paused_until is not None}
    assert paused == {"inner"}
    assert events(app, "inner")[0] == "throttled"
    assert source(app, "inner").failure_streak == 0


@pytest.mark.parametrize("how", ["raised", "returned", "by a library"])
def test_retry_after_outside_any_block_pauses_the_jobs_own_source(app: App, how: str) -> None:
    app.set_source("own")

    @app.task(source="own")
    def fetch(how: str) -> object:
        if how == "by a library":
            raise HttpError(Response(429, Retry_After="120"))
        if how == "raised":
            raise RetryAfter(Response(429, Retry_After="120"))
        return RetryAfter(120)

    handle = fetch.enqueue(how)
    app.work()
    assert (handle.job().state, handle.job().failures) == (State.PENDING, 0)
    assert source(app, "own").paused_until is not None


def test_an_answer_that_says_when_to_come_back_counts_as_such_where_it_leaves_a_block(app: App) -> None:
    app.set_source("shop")

    @app.task(max_attempts=1)
    def fetch(ctx: Context, status: int) -> str:
        try:
            with ctx.source("shop"):
                raise HttpError(Response(status, retry_after="300"))
        except HttpError:
            if status == 503:
                raise
            return "something else"

    handles = {status: fetch.enqueue(status) for status in (500, 503)}
    app.work()
    assert handles[500].result(0) == "something else"
    assert handles[503].job().state is State.PENDING
    assert events(app, "shop").count("throttled") == 1
    assert source(app, "shop").failure_streak == 1

    @app.task(max_attempts=1)
    def plain() -> None:
        raise HttpError(Response(503, Retry_After="300"))

    failed = plain.enqueue()
    app.work()
    with pytest.raises(JobFailed):  # a job without a source, and outside any: it is an error like others
        failed.result(0)


# the cache


def test_what_a_source_gave_is_not_asked_for_again(app: App) -> None:
    app.set_source("shop", rate="1/h", burst=1)
    calls: list[int] = []

    @app.task
    def fetch(ctx: Context, key: int) -> Any:
        def ask() -> Any:
            calls.append(key)
            return {"key": key, "pair": (1, 2), "coin": Coin("Penny", Decimal("1.5"))}

        return ctx.source("shop", max_wait=0).cached({"key": key}, ask)

    handles = [fetch.enqueue(key) for key in (1, 1, 2)]
    app.work()
    expected = {"key": 1, "pair": [1, 2], "coin": {"title": "Penny", "price": "1.5"}}
    assert [handle.result(0) for handle in handles[:2]] == [expected, expected], "the same shape, found or not"
    assert handles[2].job().state is State.PENDING, "what is not found needs leave to ask"
    assert calls == [1]


def test_inside_a_block_what_is_not_found_needs_no_leave_of_its_own(app: App) -> None:
    app.set_source("shop", rate="2/h", burst=2, max_concurrent=1)

    @app.task
    async def fetch(ctx: Context) -> list[Any]:
        async def ask() -> int:
            return 7

        async with ctx.source("shop", max_wait=0) as shop:
            found = [await shop.acached("k", ask), await ctx.source("shop").acached("other", ask)]
        return [*found, await ctx.source("shop", max_wait=0).acached("k", ask, ttl="10m")]

    handle = fetch.enqueue()
    app.work()
    assert handle.result(0) == [7, 7, 7]


def test_nothing_about_the_cache_fails_a_job(app: App) -> None:
    @app.task
    def fetch(ctx: Context) -> bool:
        thing = object()
        shop = ctx.source("shop")
        huge = shop.cached("huge", lambda: "x" * 2_000_000)
        return shop.cached("thing", lambda: thing) is thing and len(huge) == 2_000_000

    handle = fetch.enqueue()
    app.work()
    assert handle.result(0) is True
    assert "bytes of JSON to be cached" in said(app, handle)
    assert "was not cached: it is a object, which JSON cannot hold" in said(app, handle)


def test_the_cache_can_be_switched_off(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CACHE_ENABLED", "false")
    calls: list[int] = []

    @app.task
    def fetch(ctx: Context) -> None:
        for _ in range(2):
            ctx.source("shop").cached("k", lambda: calls.append(1))

    fetch.enqueue()
    app.work()
    assert calls == [1, 1]


def test_the_cache_may_have_a_file_of_its_own(app: App, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CACHE_URL", f"sqlite:///{tmp_path / 'cache.db'}")

    @app.task
    def fetch(ctx: Context) -> list[int]:
        answers = iter((1, 2))
        return [ctx.source("shop").cached("k", lambda: next(answers)) for _ in range(2)]

    handle = fetch.enqueue()
    app.work()
    assert handle.result(0) == [1, 1]
    assert (app.store.events(handle.id)[-1].detail or {})["cache"] == {"shop": [1, 1]}
    assert (tmp_path / "cache.db").exists()
    assert app.store.clear_cache("shop") == 0, "the store has none of it"


# code


def test_limits_that_code_declares_hold_from_the_first_job_on(app: App) -> None:
    app.source("shop", rate="30/m", max_concurrent=2)
    app.source("shop", rate="30/m", max_concurrent=2)
    with pytest.raises(ConfigurationError, match="declared twice"):
        app.source("shop", rate="31/m")
    with pytest.raises(InvalidInput, match="rate"):
        app.source("other", rate="many")

    app.work()
    assert (source(app, "shop").rate_limit_per_minute, source(app, "shop").max_concurrent) == (30, 2)
    app.set_source("shop", rate="10/m")
    app.work()
    assert source(app, "shop").rate_limit_per_minute == 10, "what was changed since stays"


def test_a_task_that_is_called_directly_needs_no_engine(app: App) -> None:
    app.set_source("shop", max_concurrent=0)

    @app.task(source="shop")
    def fetch(ctx: Context) -> Any:
        with ctx.source("shop") as shop:
            return shop.cached("k", lambda: (1, 2))

    @app.task
    async def afetch(ctx: Context) -> Any:
        async def ask() -> int:
            return 1

        async with ctx.source("shop") as shop:
            return await shop.acached("k", ask)

    @app.task
    def keep(ctx: Context) -> None:
        ctx.record("s", "a", {"title": "x"})

    assert fetch() == [1, 2]
    assert asyncio.run(afetch()) == 1
    with pytest.raises(ConfigurationError, match="only inside a job"):
        keep()
