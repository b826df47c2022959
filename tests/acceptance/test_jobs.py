"""`holdfast jobs`: look, cancel, requeue."""

import json
import re
import uuid

from holdfast import NewJob
from holdfast.domain.job import Claimed
from holdfast.domain.outcome import Failed, JobError, Report, Succeeded
from holdfast.stores.sql_store import SqlStore
from tests.acceptance.command_line import CommandLine, InProcess

NOBODY = str(uuid.UUID(int=7))
ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def claim(store: SqlStore, job: NewJob, worker: str = "ada") -> Claimed:
    store.enqueue(job)
    [claimed] = store.claim(worker, queues=[job.queue])
    return claimed


def fail_for_good(store: SqlStore, job: NewJob) -> str:
    claimed = claim(store, job)
    error = JobError("ValueError", "no \x1b[31mgood\x1b[0m", retryable=False)
    store.settle([Report(claimed.job_id, claimed.attempt, claimed.lease_token, Failed(error), "ada")])
    return claimed.job_id


def test_the_list_is_newest_first_in_pages_with_whole_ids(
    holdfast: CommandLine, here: InProcess, store: SqlStore
) -> None:
    ids = [answer.id for answer in store.enqueue_many([NewJob(task="add") for _ in range(5)])][::-1]

    first = holdfast("jobs", "list", "--limit", "3", "--json").succeeded().document
    assert [job["id"] for job in first["jobs"]] == ids[:3]
    assert first["after"] == ids[2]

    rest = here("jobs", "list", "--after", first["after"], "--json").succeeded().document
    assert ([job["id"] for job in rest["jobs"]], rest["after"]) == (ids[3:], None)

    in_words = holdfast("jobs", "list", "--limit", "3").succeeded()
    assert [line.split()[0] for line in in_words.out.splitlines()] == ["id", *ids[:3]]
    assert "\x1b" not in in_words.out
    assert f"--after {ids[2]}" in in_words.err


def test_the_list_can_be_narrowed_and_says_no_when_nothing_is_left(here: InProcess, store: SqlStore) -> None:
    failed = fail_for_good(store, NewJob(task="fetch", queue="slow"))
    store.enqueue(NewJob(task="add"))

    for narrowed in (["--state", "failed"], ["--queue", "slow"], ["--task", "fetch"]):
        found = here("jobs", "list", *narrowed, "--json").succeeded().document
        assert [job["id"] for job in found["jobs"]] == [failed]

    nothing = here("jobs", "list", "--state", "running", "--state", "cancelled", "--json").said_no()
    assert nothing.document == {"jobs": [], "after": None}
    assert "no such job" in here("jobs", "list", "--task", "nothing").said_no().err


def test_one_job_is_shown_with_its_events_and_attempts_and_never_with_its_lease_token(
    holdfast: CommandLine, here: InProcess, store: SqlStore
) -> None:
    held = claim(store, NewJob(task="add", payload={"a": 1}))
    forged = Report(held.job_id, held.attempt, "forged", Succeeded(), "mallory")
    store.settle([forged])

    told = holdfast("jobs", "show", held.job_id, "--json").succeeded()
    shown = told.document
    assert (shown["id"], shown["state"], shown["payload"], shown["lease_owner"]) == (
        held.job_id, "running", {"a": 1}, "ada",
    )  # fmt: skip
    assert "lease_token" not in shown
    assert ISO.fullmatch(shown["created_at"])
    assert [event["event"] for event in shown["events"]] == ["enqueued", "claimed"]
    assert [(attempt["attempt"], attempt["worker"]) for attempt in shown["attempts"]] == [(1, "ada")]
    assert [(refusal["verb"], refusal["reason"]) for refusal in shown["refusals"]] == [("complete", "unknown_lease")]

    in_words = holdfast("jobs", "show", held.job_id).succeeded()
    assert "just now" in in_words.out or " ago" in in_words.out
    assert "unknown_lease" in in_words.out
    listed = here("jobs", "list", "--json").succeeded()
    assert held.lease_token not in told.out + in_words.out + listed.out
    assert "lease_token" not in listed.out


def test_what_an_error_message_says_to_the_terminal_is_shown_and_not_obeyed(here: InProcess, store: SqlStore) -> None:
    job_id = fail_for_good(store, NewJob(task="add"))

    for command in (["jobs", "show", job_id], ["jobs", "list"]):
        out = here(*command).succeeded().out
        assert "\x1b" not in out
        assert r"no \x1b[31mgood" in out
    assert json.loads(here("jobs", "show", job_id, "--json").out)["last_error"]["message"].startswith("no \x1b")


def test_to_show_a_job_that_is_not_there_is_a_no_and_what_is_no_id_is_wrong_usage(here: InProcess) -> None:
    missing = here("jobs", "show", NOBODY, "--json").said_no()
    assert missing.out == ""
    assert NOBODY in missing.err
    here("jobs", "show", "seven").refused("job_id", "UUID", "seven")
    here("jobs", "list", "--limit", "0").refused("limit", "between 1 and 1000")
    here("jobs", "list", "--state", "sleeping").refused("--state", "'pending'")
    here("jobs", "cancel").refused("ID")


def test_cancel_answers_for_each_job(holdfast: CommandLine, here: InProcess, store: SqlStore) -> None:
    running = claim(store, NewJob(task="add")).job_id
    waiting = store.enqueue(NewJob(task="add")).id

    answers = holdfast("jobs", "cancel", running, waiting, NOBODY, "--json").said_no().document["jobs"]
    assert answers == [
        {"id": running, "ok": True, "did": "cancel_requested", "state": "running"},
        {"id": waiting, "ok": True, "did": "cancelled", "state": "cancelled"},
        {"id": NOBODY, "ok": False, "did": "not_found", "state": None},
    ]
    assert here("jobs", "cancel", waiting).succeeded().out == f"{waiting}  cancelled\n"
    assert "there is no such job" in here("jobs", "cancel", NOBODY).said_no().out


def test_requeue_answers_for_each_job(holdfast: CommandLine, here: InProcess, store: SqlStore) -> None:
    failed = fail_for_good(store, NewJob(task="add"))
    assert holdfast("jobs", "requeue", failed, "--json").succeeded().document["jobs"][0]["did"] == "requeued"

    again = here("jobs", "requeue", failed).said_no()
    assert f"{failed}  refused: it is pending, and only a failed or cancelled job can be requeued" in again.out
    assert store.job(failed).failures == 0
    here("jobs", "cancel", failed).succeeded()
    assert here("jobs", "requeue", failed).succeeded().out == f"{failed}  pending again\n"
