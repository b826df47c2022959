"""A schedule in the code fires in a real worker, and what is changed at run time counts there."""

from tests.worker.site import Site, WorkerProcess

SOURCE = """
    from datetime import datetime

    @app.schedule(every="1s", tick="planned", kwargs={"word": "tick"}, misfire="all")
    @app.task(queue="clockwork")
    def strike(word: str, planned: datetime) -> str:
        return f"{word} {planned.isoformat()}"

    @app.schedule("0 9 * * mon-fri", timezone="Europe/Berlin")
    def office() -> None: ...
"""


def test_a_schedule_in_the_code_fires_and_its_jobs_run(site: Site) -> None:
    site.tasks(SOURCE)
    worker = site.worker("--processes", "1")
    site.wait(lambda: site.counts().get("succeeded", 0) >= 3, "three ticks have run")
    assert [(schedule.name, schedule.cron) for schedule in site.store.schedules()] == [
        ("office", "0 9 * * mon-fri"),
        ("strike", None),
    ]

    site.store.pause_schedule("strike")
    site.wait(lambda: set(site.counts()) == {"succeeded"}, "all that have fired have run")
    ticks = site.store.ticks("strike", 1000)
    assert {tick.outcome for tick in ticks} == {"fired"}
    assert all(one.planned_at.microsecond == ticks[0].planned_at.microsecond for one in ticks), "no steady second"
    jobs = [site.job(str(tick.job_id)) for tick in ticks]
    assert {job.queue for job in jobs} == {"clockwork"}
    assert [job.result for job in jobs] == [f"tick {tick.planned_at.isoformat()}" for tick in ticks]
    site.wait(lambda: told(worker) == {job.id for job in jobs}, "the log tells of each")


def told(worker: WorkerProcess) -> set[str]:
    return {line["job_id"] for line in worker.lines() if line["event"] == "schedule fired"}
