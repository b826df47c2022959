"""A real `rq worker` runs jobs: the lease decides, whatever RQ does with its messages."""

from __future__ import annotations

import signal

import psutil
import pytest

from holdfast.domain.lifecycle import State
from holdfast.transports.rq_queues import RqQueues
from holdfast.transports.rq_refusals import LACKING_SECONDS
from tests.rq.station import Station
from tests.servers.waiting import DEADLINE_SECONDS, gone
from tests.worker.site import WorkerProcess

pytestmark = pytest.mark.usefixtures("rq_worker")


def test_a_job_error_is_on_record_here_and_no_failure_of_rq(station: Station) -> None:
    job_id, message = station.send_new("stumble")
    answer = station.answer(message)
    assert answer == {"job_id": job_id, "ran": True, "attempt": 1, "recorded": "retry_scheduled"}
    job = station.site.job(job_id)
    assert job.state is State.RETRYABLE
    assert (job.last_error or {})["message"] == "over the cable"
    assert message.id not in station.failed_messages()


def test_five_messages_of_one_job_run_it_once(station: Station) -> None:
    job_id = station.enqueue("note", {"name": "five.txt"})
    answers = [station.answer(message) for message in [station.send(job_id) for _ in range(5)]]
    assert [answer["ran"] for answer in answers].count(True) == 1
    assert {answer.get("why") for answer in answers} == {None, "it is succeeded already"}
    assert (station.site.folder / "five.txt").read_text() == "once\n"
    assert station.site.event_names(job_id) == ["enqueued", "claimed", "succeeded"]


def test_a_lost_race_is_logged_and_acknowledged(station: Station, rq_worker: WorkerProcess) -> None:
    job_id = station.enqueue("add", {"a": 1, "b": 2})
    held = station.site.store.claim_job("another", job_id)
    assert held is not None
    message = station.send(job_id)
    assert station.answer(message) == {"job_id": job_id, "ran": False, "why": "another worker holds it"}
    rq_worker.wait_for_log(f"job {job_id} is not run here: another worker holds it")
    assert station.site.event_names(job_id) == ["enqueued", "claimed"]
    assert message.id not in station.failed_messages()


def test_the_lease_of_a_long_job_is_renewed_again_and_again(station: Station) -> None:
    job_id, message = station.send_new("wait_for", {"name": "long"})
    station.runner("long")
    ends = {station.site.job(job_id).lease_expires_at}

    def is_renewed_again() -> bool:
        ends.add(station.site.job(job_id).lease_expires_at)
        return len(ends) > 3

    station.site.wait(is_renewed_again, "the lease is renewed again and again")
    station.open_gate("long")
    assert station.answer(message)["recorded"] == "succeeded"
    assert station.site.job(job_id).result == "seen"
    assert station.site.claims(job_id) == 1


def test_a_killed_work_horse_takes_its_runner_along_and_the_job_is_recovered(station: Station) -> None:
    job_id, message = station.send_new("wait_for", {"name": "killed"})
    horse, runner = station.horse("killed"), station.runner("killed")
    print(f"work-horse with pid {horse.pid}, runner with pid {runner.pid}")
    horse.kill()
    station.site.wait(lambda: gone(runner.pid), "the runner dies with the work-horse")
    station.site.wait(lambda: message.get_status(refresh=True) == "failed", "RQ has noticed")
    assert station.state(job_id) is State.RUNNING
    station.end_lease(job_id)
    station.open_gate("killed")
    assert station.answer(station.send(job_id))["ran"]
    assert station.site.event_names(job_id) == ["enqueued", "claimed", "lease_lost", "claimed", "succeeded"]


def test_a_work_horse_that_is_told_to_stop_gives_the_job_back(station: Station) -> None:
    job_id, message = station.send_new("wait_for", {"name": "stopped"})
    station.horse("stopped").send_signal(signal.SIGTERM)
    assert station.answer(message)["recorded"] == "released"
    job = station.site.job(job_id)
    assert (job.state, job.failures, job.crashes) == (State.PENDING, 0, 0)
    station.open_gate("stopped")


def test_a_job_that_nobody_sent_a_message_for_is_offered_by_a_worker_of_another_queue(station: Station) -> None:
    job_id = station.enqueue("add", {"a": 2, "b": 3}, delay=0.5)
    sweeping = station.site.worker("--queues", "another", "--processes", "1", HOLDFAST_RQ_URL=station.redis_url)
    assert station.site.wait_for_state(job_id, State.SUCCEEDED).result == 5
    assert sweeping.stop() == 0


def test_jobs_of_a_task_that_the_app_lacks_are_refused_once_and_then_without_a_runner(
    station: Station, rq_worker: WorkerProcess
) -> None:
    queues = RqQueues(station.redis_url, timeout=DEADLINE_SECONDS)
    unknown = [station.enqueue("unheard") for _ in range(3)]
    offers = station.site.store.offers_of(unknown)
    assert queues.push([offers[unknown[0]]]) == 1
    rq_worker.wait_for_log(f"job {unknown[0]} is not run here: this app has no task unheard")
    [lacking] = station.redis.scan_iter("holdfast-rq:lacking:*:unheard")
    assert 0 < station.redis.ttl(lacking) <= LACKING_SECONDS
    station.redis.persist(lacking)  # it would be forgotten soon
    assert queues.push(offers[job_id] for job_id in unknown[1:]) == 2
    for job_id in unknown[1:]:
        rq_worker.wait_for_log(f"job {job_id} is not run here: this app had no task unheard a moment ago")
    station.site.wait(lambda: not station.redis.exists(f"rq:job:holdfast-{unknown[2]}-1"), "RQ has forgotten it")
    assert queues.push(offers.values()) == 0
    queues.close()
    station.redis.delete(lacking)
    assert station.site.event_names(unknown[0]) == ["enqueued"]
    station.site.store.cancel(unknown)


def test_nothing_is_left_of_finished_jobs(station: Station, rq_worker: WorkerProcess) -> None:
    station.site.wait(lambda: rq_worker.runners() == [], "no work-horse is left")
    assert psutil.Process(rq_worker.pid).is_running()
    station.site.wait(lambda: station.rq_queue.count == 0, "no message is left")
