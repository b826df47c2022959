"""`holdfast retention`: rules, the dry run, the run; and what `holdfast verify` tells of it."""

import re

from holdfast import NewJob
from holdfast.domain.lifecycle import State
from holdfast.stores.sql_store import SqlStore
from tests.acceptance.command_line import CommandLine, InProcess
from tests.acceptance.test_jobs import fail_for_good


def rules(document: dict[str, object]) -> dict[tuple[str, str, str], tuple[float | None, bool]]:
    found = document["rules"]
    assert isinstance(found, list)
    return {(r["what"], r["queue"], r["state"]): (r["keep_seconds"], r["default"]) for r in found}


def test_the_rules_in_force_are_shown_set_and_taken_back(holdfast: CommandLine, here: InProcess) -> None:
    shown = rules(holdfast("retention", "--json").succeeded().document)
    assert shown["jobs", "*", "failed"] == (90 * 86_400.0, True)
    assert len(shown) == 6

    here("retention", "set", "--keep", "2d", "--state", "failed", "--queue", "mail").succeeded()
    here("retention", "set", "--keep", "forever", "--histories").succeeded()
    found = rules(here("--json", "retention").succeeded().document)
    assert found["jobs", "mail", "failed"] == (2 * 86_400.0, False)
    assert {found["histories", "*", state] for state in ("succeeded", "failed", "cancelled")} == {(None, False)}
    lines = here("retention").succeeded().out.splitlines()
    assert ["jobs", "mail", "failed", "2", "d", "set"] in [line.split() for line in lines]
    assert ["histories", "*", "failed", "forever", "set"] in [line.split() for line in lines]

    here("retention", "unset", "--queue", "mail", "--state", "failed").succeeded()
    assert here("retention", "unset", "--queue", "mail", "--state", "failed").said_no().err.count("no such rule") == 1
    here("retention", "unset", "--histories").succeeded()
    assert rules(here("retention", "--json").document) == shown


def test_wrong_rules_are_refused_with_the_field_and_the_rule(inside: InProcess) -> None:
    inside("retention", "set", "--keep", "soon").refused("keep", "duration", "forever", "soon")
    inside("retention", "set", "--keep", "1d", "--state", "running").refused("state", "succeeded, failed or cancelled")
    inside("retention", "set", "--keep", "1d", "--state", "gone").refused("gone")
    inside("retention", "set", "--keep", "1d", "--queue", "").refused("queue", "empty")
    inside("retention", "set").refused("keep")
    assert list(inside.folder.iterdir()) == []


def test_the_dry_run_tells_what_the_run_then_removes(holdfast: CommandLine, here: InProcess, store: SqlStore) -> None:
    ids = [fail_for_good(store, NewJob(task="add", queue="mail")) for _ in range(3)]
    kept = fail_for_good(store, NewJob(task="add"))
    here("retention", "set", "--keep", "0s", "--state", "failed", "--queue", "mail").succeeded()

    told = here("retention", "run", "--dry-run", "--json").succeeded().document
    [group] = told["groups"]
    assert (told["removed"], group["what"], group["queue"], group["count"]) == (None, "jobs", "mail", 3)
    assert here("retention", "run", "--dry-run").succeeded().out.splitlines()[1].split()[:3] == [
        "jobs",
        "mail",
        "failed",
    ]
    assert store.counts() == {"failed": 4}, "a dry run removes nothing"

    done = holdfast("retention", "run", "--json").succeeded().document
    assert done["removed"] == {"histories": 0, "jobs": 3, "leftovers": 0}
    assert [job.id for job in store.jobs().items] == [kept]
    assert [store.events(job_id)[-1].event for job_id in ids] == ["pruned"] * 3
    assert here("retention", "run", "--dry-run").succeeded().out == "There is nothing to remove.\n"

    here("retention", "set", "--keep", "0s", "--histories").succeeded()
    assert "histories of 3" in here("retention", "run").succeeded().out
    verdict = holdfast("verify", "--json").succeeded().document
    assert (verdict["jobs"], verdict["retired"]["jobs"], verdict["retired"]["events"]) == (1, 3, 12)
    retired, in_order = here("verify").succeeded().out.splitlines()
    assert retired.startswith("Retired so far: the histories of 3 jobs (12 events), pruned up to 2")
    assert in_order == "In order: 1 jobs, 3 events, no violation."
    shown = here("retention").succeeded().out
    assert "histories of 3 jobs" in shown
    assert re.search(r"histories: last begun (just now|.* ago) by holdfast retention run", shown)


def test_the_last_run_of_a_worker_is_shown(here: InProcess, store: SqlStore) -> None:
    store.take_turn("retention", "ann", 60)
    assert here("retention", "--json").document["last_runs"][0]["holder"] == "ann"
    assert "retention: last begun" in here("retention").succeeded().out


def test_reading_commands_create_no_file(inside: InProcess) -> None:
    for words in (["retention"], ["retention", "run"], ["retention", "unset"], ["dead", "list"], ["dead", "purge"]):
        inside(*words).said_no()
    assert list(inside.folder.iterdir()) == []


# the dead letters


def test_dead_letters_are_counted_by_task_and_error(holdfast: CommandLine, here: InProcess, store: SqlStore) -> None:
    assert here("dead", "list", "--json").said_no().document == {"groups": [], "jobs": [], "after": None}
    mails = [fail_for_good(store, NewJob(task="mail")) for _ in range(2)]
    fetch = fail_for_good(store, NewJob(task="fetch", queue="slow"))
    store.enqueue(NewJob(task="mail"))

    found = holdfast("dead", "list", "--json").succeeded().document
    assert [(g["task"], g["code"], g["count"]) for g in found["groups"]] == [
        ("mail", "ValueError", 2),
        ("fetch", "ValueError", 1),
    ]
    assert [job["id"] for job in found["jobs"]] == [fetch, *reversed(mails)]
    for narrowed in (["--task", "fetch"], ["--queue", "slow"]):
        assert [job["id"] for job in here("dead", "list", *narrowed, "--json").document["jobs"]] == [fetch]
    page = here("dead", "list", "--limit", "1", "--json").document
    assert page["after"] == fetch
    rest = here("dead", "list", "--after", fetch, "--json").document
    assert [job["id"] for job in rest["jobs"]] == list(reversed(mails))
    lines = [line.split() for line in here("dead", "list").succeeded().out.splitlines()]
    assert lines[1][:3] == ["mail", "ValueError", "2"]
    assert fetch in [line[0] for line in lines if line]


def test_dead_letters_are_requeued_one_by_one_or_all(holdfast: CommandLine, here: InProcess, store: SqlStore) -> None:
    mails = [fail_for_good(store, NewJob(task="mail")) for _ in range(3)]
    fetch = fail_for_good(store, NewJob(task="fetch"))
    here("dead", "requeue").refused("--all")
    here("dead", "requeue", "--all", fetch).refused("--all")
    here("dead", "requeue", fetch, "--task", "fetch").refused("--task")
    here("dead", "requeue", "--all").refused("--yes", "4")
    assert store.counts() == {"failed": 4}

    assert here("dead", "requeue", mails[0], "--json").succeeded().document["requeued"] == 1
    again = here("dead", "requeue", mails[0], "--json").said_no().document
    assert (again["requeued"], again["refused"], again["jobs"][0]["did"]) == (0, 1, "wrong_state")
    done = holdfast("dead", "requeue", "--all", "--task", "mail", "--yes").succeeded()
    assert done.out == "2 jobs are pending again; 0 were refused.\n"
    assert [store.job(job_id).state for job_id in (*mails, fetch)] == [State.PENDING] * 3 + [State.FAILED]


def test_dead_letters_are_purged_and_stay_on_record(holdfast: CommandLine, here: InProcess, store: SqlStore) -> None:
    mails = [fail_for_good(store, NewJob(task="mail")) for _ in range(2)]
    fail_for_good(store, NewJob(task="fetch"))
    here("dead", "purge", "--task", "mail").refused("--yes", "2")
    assert here("dead", "purge", "--older-than", "1h", "--yes").succeeded().out == "0 jobs deleted.\n"
    here("dead", "purge", "--older-than", "long").refused("--older-than", "duration")
    told = here("dead", "purge", "--task", "mail", "--dry-run", "--json").succeeded().document
    assert (told["purged"], told["groups"][0]["count"]) == (None, 2)
    assert "2 jobs would be deleted" in here("dead", "purge", "--task", "mail", "--dry-run").succeeded().out
    assert store.counts() == {"failed": 3}

    assert holdfast("dead", "purge", "--task", "mail", "--yes", "--json").succeeded().document["purged"] == 2
    assert store.counts() == {"failed": 1}
    assert [store.events(job_id)[-1].event for job_id in mails] == ["pruned"] * 2
    here("verify").succeeded()
