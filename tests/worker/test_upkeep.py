"""Workers remove what is old while they drain, whoever of them dies, and the ledger is in order all the while."""

import pytest

from holdfast.domain.retention import Kept
from holdfast.maintenance.verify import Verdict, verify
from holdfast.stores.histories import Histories
from holdfast.stores.references import References
from tests.chaos.databases import query
from tests.worker.finished import load_finished
from tests.worker.site import Site
from tests.worker.test_unrecordable import refusing

OFTEN = {"HOLDFAST_UPKEEP_SECONDS": "0.3"}


def check(site: Site) -> Verdict:
    engine = site.store.database.engine
    return verify(Histories(engine), references=References(engine))


def ids_of(site: Site, queue: str) -> set[str]:
    return {str(row[0]) for row in query(site.url, f"SELECT id FROM holdfast_jobs WHERE queue = '{queue}'")}


def pruned(site: Site) -> set[str]:
    return {str(row[0]) for row in query(site.url, "SELECT job_id FROM holdfast_events WHERE event = 'pruned'")}


def log_lines(site: Site) -> set[str]:
    return {str(row[0]) for row in query(site.url, "SELECT DISTINCT job_id FROM holdfast_logs")}


def write_log_lines(site: Site, queue: str) -> None:
    query(
        site.url,
        "INSERT INTO holdfast_logs (job_id, attempt, number, at, stream, message)"
        f" SELECT id, 1, 1, finished_at, 'stdout', 'hello' FROM holdfast_jobs WHERE queue = '{queue}'",
    )


@pytest.mark.long
def test_many_old_jobs_go_while_workers_drain_and_one_of_them_is_killed(site: Site) -> None:
    remove_while_draining(site, 20_000, 2_000, 10_000)


def test_old_jobs_go_while_workers_drain_and_one_of_them_is_killed(site: Site) -> None:
    remove_while_draining(site, 2_500, 300, 600)


def remove_while_draining(site: Site, old_count: int, kept_count: int, drained_count: int) -> None:
    site.verify_at_end = False  # which counts only jobs with a row
    site.tasks("@app.task\ndef noop(): pass")
    everything = old_count + kept_count + drained_count
    old = load_finished(site.store, old_count)
    kept = load_finished(site.store, kept_count, queue="kept", first=old_count + 1)
    site.store.set_retention("jobs", "kept", "succeeded", None)
    write_log_lines(site, "old")
    drained = site.enqueue_many("noop", drained_count)
    before = check(site)
    assert (before.ok, before.jobs) == (True, everything)

    with refusing(site, "DELETE ON holdfast_jobs", f"OLD.id = '{old[-1]}'"):  # so that it does not come to the end
        first = site.worker(**OFTEN)
        site.wait(lambda: len(pruned(site)) > 0, "the first batch is pruned")
        first.kill()
    site.take_leases(*(str(row[0]) for row in query(site.url, "SELECT id FROM holdfast_jobs WHERE state = 'running'")))
    gone = pruned(site)
    assert 0 < len(gone) < old_count, "it was killed in the middle"
    assert ids_of(site, "old") == log_lines(site) == set(old) - gone, "a job is there with its lines, or neither is"

    crew = [site.worker(**OFTEN) for _ in range(2)]
    during = check(site)
    assert during.ok, during.violations
    site.wait(lambda: not ids_of(site, "old"), "all old jobs are pruned")
    site.wait(lambda: not site.store.retention_due(Kept.JOBS), "nothing is due any more")
    site.wait(lambda: site.counts() == {"succeeded": kept_count + drained_count}, "all others are done")
    assert [worker.stop() for worker in crew] == [0, 0]

    assert pruned(site) == set(old), "these and no others"
    assert ids_of(site, "kept") == set(kept)
    assert ids_of(site, "default") == set(drained)
    assert log_lines(site) == set()
    after = check(site)
    assert (after.ok, after.jobs) == (True, everything), after.violations
    batches = [line for worker in crew for line in worker.lines() if line["event"] == "upkeep batch"]
    assert sum(line["count"] for line in batches if line["chore"] == "retention") == old_count - len(gone)


def test_histories_are_retired_by_workers_and_the_watermark_says_so(sqlite_site: Site) -> None:
    site = sqlite_site
    site.verify_at_end = False
    site.tasks("@app.task\ndef noop(): pass")
    load_finished(site.store, 600)
    site.store.set_retention("histories", "old", "succeeded", 0.0)
    worker = site.worker(**OFTEN)
    site.wait(lambda: (mark := site.store.histories_retired()) is not None and mark.jobs == 600, "all are retired")
    assert worker.stop() == 0
    verdict = check(site)
    assert (verdict.ok, verdict.jobs, verdict.events) == (True, 0, 0)
    assert verdict.retired is not None
    assert verdict.retired.events == 2_400
