"""`holdfast queues`, `holdfast sources` and `holdfast stuck`."""

from datetime import UTC, datetime, timedelta

from holdfast import NewJob
from holdfast.stores.sql_store import SqlStore
from tests.acceptance.command_line import CommandLine, InProcess


def test_queues_are_listed_with_what_waits_in_them(holdfast: CommandLine, here: InProcess, store: SqlStore) -> None:
    assert here("queues", "--json").succeeded().document == {"queues": []}
    store.enqueue_many([NewJob(task="add"), NewJob(task="add"), NewJob(task="add", delay="1h")])

    [queue] = holdfast("--json", "queues").succeeded().document["queues"]
    assert (queue["name"], queue["ready"], queue["scheduled"], queue["running"]) == ("default", 2, 1, 0)
    heading, row = holdfast("queues").succeeded().out.splitlines()
    assert heading.split()[:4] == ["queue", "ready", "scheduled", "running"]
    assert row.split()[:4] == ["default", "2", "1", "0"]


def test_a_queue_is_paused_limited_and_resumed(holdfast: CommandLine, here: InProcess, store: SqlStore) -> None:
    store.enqueue_many([NewJob(task="add"), NewJob(task="add")])

    assert "paused" in holdfast("queues", "pause", "default").succeeded().out
    assert store.claim("ada") == []
    assert holdfast("queues", "resume", "default", "--json").succeeded().document["paused_at"] is None
    assert holdfast("queues", "--json", "limit", "default", "1").succeeded().document["max_running"] == 1
    store.limit_queue("default", 1)  # this process remembers for five seconds that there were no limits
    assert len(store.claim("ada", limit=2)) == 1
    assert here("queues", "limit", "default", "none", "--json").succeeded().document["max_running"] is None


def test_a_wrong_limit_names_the_field_and_the_rule(inside: InProcess) -> None:
    inside("queues", "limit", "default", "many").refused("limit", "whole number", "none", "many")
    inside("queues", "limit", "default").refused("N|none")
    inside("queues", "halt", "default").refused("halt")
    inside("sources", "set", "shop").refused("limits", "--max-concurrent")
    inside("sources", "set", "shop", "--max-concurrent", "few").refused("max_concurrent", "whole number", "few")
    inside("sources", "set", "shop", "--rate-limit-per-minute", "x").refused("rate_limit_per_minute", "number")
    assert list(inside.folder.iterdir()) == []


def test_a_limit_out_of_range_names_the_field_and_the_rule(here: InProcess) -> None:
    here("queues", "limit", "default", "--", "-1").refused("max_running", "between 0 and")
    here("sources", "set", "shop", "--burst", "0").refused("burst", "between 1 and")
    here("sources", "set", "shop", "--rate-limit-per-minute", "0").refused("rate_limit_per_minute")
    assert here("sources", "--json").succeeded().document == {"sources": []}


def test_only_the_limits_that_are_named_are_changed(holdfast: CommandLine, here: InProcess) -> None:
    created = holdfast("sources", "set", "shop", "--max-concurrent", "2", "--burst", "3", "--json").succeeded().document
    assert (created["max_concurrent"], created["burst"], created["enabled"]) == (2, 3, True)

    holdfast("sources", "set", "shop", "--rate-limit-per-minute", "7.5", "--disabled").succeeded()
    here("sources", "--json", "set", "shop", "--max-concurrent", "none").succeeded()
    [source] = holdfast("sources", "--json").succeeded().document["sources"]
    assert (source["max_concurrent"], source["burst"], source["rate_limit_per_minute"]) == (None, 3, 7.5)
    assert source["enabled"] is False
    name, state, level, *others = here("sources").succeeded().out.splitlines()[1].split()
    assert (name, state, level.partition("/")[2]) == ("shop", "disabled", "3"), "its level rises while we look"
    assert others == ["7.5/m", "0/-", "0", "0/5", "never", "never"]


def test_what_is_stuck_is_listed_with_the_reason(holdfast: CommandLine, here: InProcess, store: SqlStore) -> None:
    assert here("stuck").succeeded().out == "Nothing is stuck.\n"
    store.pause_queue("slow")
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    job_id = store.enqueue(NewJob(task="add", queue="slow", run_after=long_ago)).id

    [stuck] = holdfast("stuck", "--json").succeeded().document["stuck"]
    assert (stuck["job"]["id"], stuck["reason"]) == (job_id, "its queue is paused")
    heading, row, *explained = here("stuck").succeeded().out.splitlines()
    assert heading.split() == ["id", "task", "queue", "state", "jobs", "since", "reason"]
    assert f"{job_id}  its queue is paused" in explained
    assert "  what to do: holdfast queues resume slow" in explained
    assert row.split() == [job_id, "add", "slow", "pending", "1", "1", "h", "ago", "its", "queue", "is", "paused"]
