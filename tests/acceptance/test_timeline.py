"""`holdfast jobs show` draws who held the job when, and how each attempt ended."""

import pytest

from holdfast import NewJob
from holdfast.domain.answers import Beat
from holdfast.domain.job import Claimed
from holdfast.domain.outcome import Failed, JobError, Report, Succeeded
from holdfast.domain.retry import RetryPolicy
from holdfast.stores.sql_store import SqlStore
from tests.acceptance.command_line import CommandLine, InProcess
from tests.acceptance.terminal import terminal


def report(store: SqlStore, claimed: Claimed, ending: Failed | Succeeded, worker: str) -> None:
    store.settle([Report(claimed.job_id, claimed.attempt, claimed.lease_token, ending, worker)])


def tried_twice(store: SqlStore) -> str:
    """Ada fails, bob succeeds, and then ada comes back with a token that is worth nothing any more."""
    job_id = store.enqueue(NewJob(task="resize", retry=RetryPolicy(base=0, jitter=0))).id
    [first] = store.claim("ada")
    report(store, first, Failed(JobError("Timeout", "too slow")), "ada")
    [second] = store.claim("bob")
    report(store, second, Succeeded(), "bob")
    store.heartbeat([Beat(job_id, first.attempt, first.lease_token, "ada")])
    return job_id


def test_each_attempt_is_on_its_workers_lane_with_how_it_ended_in_a_letter(here: InProcess, store: SqlStore) -> None:
    out = here("jobs", "show", tried_twice(store)).succeeded().out
    lines = out[out.index("timeline") : out.index("\nevents")].splitlines()

    title, job, ada, bob, axis, *legend = (line.rstrip() for line in lines if line)
    assert title.startswith("timeline  2 attempts in ")
    assert job.split()[:2] == ["job", "E"] or job.startswith("job  E")
    assert ada.startswith("ada")
    assert "R" in ada
    assert ada.endswith("N"), "what the zombie said last was refused"
    assert bob.startswith("bob")
    assert bob.endswith("S")
    assert axis.split()[0] == "0"
    assert " ".join(" ".join(legend).split()).startswith("E enqueued S succeeded R failed, will retry")
    assert "N not accepted (refused)" in " ".join(legend)
    assert max(map(len, lines)) <= 100
    assert "\x1b" not in out


@pytest.mark.parametrize("database_with_tables", ["sqlite"], indirect=True)
def test_colours_only_repeat_what_the_letters_say(holdfast: CommandLine, store: SqlStore) -> None:
    arguments = holdfast.arguments("jobs", "show", tried_twice(store))
    without = holdfast.environment(NO_COLOR="1")
    with (
        terminal(arguments, holdfast.folder, holdfast.environment(), (70, 40)) as colourful,
        terminal(arguments, holdfast.folder, without, (70, 40)) as plain,
    ):
        assert (colourful.ended(), plain.ended()) == (0, 0)
        assert "\x1b[1;32mS" in colourful.written
        assert "\x1b[1;32mS" not in plain.written
        timelines = [
            screen.text[screen.text.index("timeline") : screen.text.index("\nevents")] for screen in (colourful, plain)
        ]
        assert [text.count("S") - text.count("S succeeded") for text in timelines] == [1, 1]
        assert all(len(line) <= 70 for text in timelines for line in text.splitlines())
