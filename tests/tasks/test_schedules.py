"""Schedules belong to workers: a notebook or a test that works off its jobs is not surprised by others."""

from holdfast import App
from holdfast.testing import fresh_store


def test_working_here_neither_announces_nor_fires_schedules(app: App) -> None:
    @app.schedule(every="1s")
    @app.task
    def tick() -> None: ...

    tick.enqueue()
    assert app.work() == 1
    assert app.store.schedules() == []
    assert app.store.announce_schedules(app.declarations()) == ()
    assert app.work() == 0


def test_a_test_may_fire_them_itself(app: App) -> None:
    @app.schedule("0 0 1 1 *", kwargs={"a": 1})
    @app.task
    def yearly(a: int) -> int:
        return a

    with fresh_store(app) as jobs:
        app.store.announce_schedules(app.declarations())
        app.store.run_schedule_now("yearly")
        jobs.assert_enqueued(yearly, {"a": 1}, count=1)
        assert jobs.work() == 1
