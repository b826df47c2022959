"""What jobs ask for while they run, by a worker that knows no database: the control plane does it."""

from collections.abc import Iterator

import pytest

from holdfast.domain.lifecycle import State
from tests.remote.fleet import Fleet
from tests.serve.grounds import Served, serving

TASKS = """
    from holdfast import InvalidInput, RetryAfter
    app.source("shop", rate="600/m", burst=10, max_concurrent=2)

    @app.task
    def collect(ctx: Context):
        with ctx.source("shop") as shop:
            values = [shop.cached("k", lambda n=n: {"n": n}) for n in (1, 2)]
        kept = [ctx.record("coins", "shop", {"title": "Penny"}).kept for _ in range(2)]
        try:
            ctx.record("coins", "shop", {"price": -1})
        except InvalidInput as error:
            return [values, kept, ctx.upsert_single("best", 1).kept, error.field]

    @app.task
    async def acollect(ctx: Context):
        async with ctx.source("shop"):
            return (await ctx.arecord("coins", "shop", {}, external_id="7")).dedupe_key

    app.source("auctions", burst=5)  # of its own: its pause must not snooze the other jobs

    @app.task
    def throttled(ctx: Context):
        with ctx.source("auctions"):
            raise RetryAfter(600)

    app.source("mint", max_concurrent=1, burst=5)

    @app.task
    def watch(ctx: Context) -> list:
        asked = []

        def ask() -> dict:
            asked.append(1)
            return {"title": "Dime", "price": 950}

        with ctx.source("mint", max_wait="10m") as mint:
            found = [mint.cached({"coin": "dime"}, ask, ttl="10m") for _ in range(2)]
            first = ctx.record("dimes", "mint", found[0], external_id="17", strength=0.5)
            again = ctx.record("dimes", "mint", found[1], external_id="17", strength=0.4)
        only = ctx.upsert_single("dimes-value", {"cents": 95000})
        return [len(asked), str(first.kept), str(again.kept), only.dedupe_key]
"""


@pytest.fixture
def plane(sqlite_fleet: Fleet) -> Iterator[Served]:
    with serving(sqlite_fleet.url, duties=True) as served:
        yield served


def test_jobs_of_a_worker_over_http_get_what_they_ask_for(sqlite_fleet: Fleet, plane: Served) -> None:
    fleet = sqlite_fleet
    fleet.tasks(TASKS)
    collect, acollect, throttled = (fleet.enqueue(task) for task in ("collect", "acollect", "throttled"))
    watching = [fleet.enqueue("watch") for _ in range(2)]

    worker = fleet.remote_worker(plane.url, "--drain", "--slots", "2")
    assert worker.wait() == 0

    assert fleet.job(collect).result == [[{"n": 1}, {"n": 1}], ["created", "existing"], "created", "price"]
    assert fleet.job(acollect).result == "ext_7"
    assert (fleet.store.events(collect)[-1].detail or {})["cache"] == {"shop": [1, 1]}
    assert (fleet.job(throttled).state, fleet.job(throttled).failures) == (State.PENDING, 0)
    shop = fleet.store.source("shop")
    assert (shop.rate_limit_per_minute, shop.max_concurrent) == (600, 2), "as the code declares it"
    assert shop.paused_until is None
    assert fleet.store.source("auctions").paused_until is not None
    kept = fleet.store.records().items
    assert {record.job_id for record in kept} - set(watching) == {collect, acollect}
    records = {record.scope: record for record in kept}

    done = [fleet.job(job_id) for job_id in watching]
    assert [job.state for job in done] == [State.SUCCEEDED] * 2, [job.last_error for job in done]
    results = sorted((job.result for job in done), reverse=True)
    assert results == [[1, "created", "existing", "single"], [0, "existing", "existing", "single"]], (
        "one asked for both"
    )
    mint = fleet.store.source("mint")
    assert (mint.max_concurrent, mint.failure_streak) == (1, 0)
    assert mint.last_success_at is not None
    assert records["dimes"].data == {"title": "Dime", "price": 950}
    assert records["dimes-value"].job_id in watching
