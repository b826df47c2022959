"""`holdfast schedules`: looked at, made, changed, paused and run from the command line."""

import re

import pytest

from holdfast.domain.schedule import Declaration
from holdfast.stores.sql_store import SqlStore
from tests.acceptance.command_line import CommandLine, InProcess


def declare(store: SqlStore) -> None:
    """As a worker would."""
    declared = Declaration(name="tidy", task="tidy_up", every_seconds=600, job={"queue": "slow", "payload": {"a": 1}})
    assert store.announce_schedules([declared]) == ()


def test_schedules_are_listed_and_shown(holdfast: CommandLine, here: InProcess, store: SqlStore) -> None:
    assert here("schedules", "--json").succeeded().document == {"schedules": [], "unreadable": []}
    assert "no schedules" in here("schedules").succeeded().err
    declare(store)
    here("schedules", "add", "report", "--task", "mail", "--cron", "0 9 * * mon-fri", "--timezone", "Asia/Kolkata")

    listed = holdfast("schedules", "--json").succeeded().document["schedules"]
    assert [(one["name"], one["task"], one["declared"] is None) for one in listed] == [
        ("report", "mail", True),
        ("tidy", "tidy_up", False),
    ]
    heading, report, tidy = here("schedules").succeeded().out.splitlines()
    assert heading.split() == ["schedule", "task", "when", "next", "last", "declared"]
    assert "0 9 * * mon-fri (Asia/Kolkata)" in report
    assert "by an operator" in report
    assert "every 600 s" in tidy
    assert re.search(r"in (10|9|8) min", tidy)

    shown = here("schedules", "show", "report", "--json").succeeded().document
    assert len(shown["upcoming"]) == 5
    assert all(instant.endswith("T03:30:00.000000Z") for instant in shown["upcoming"])
    text = here("schedules", "show", "report").succeeded().out
    assert "09:00:00 +0530" in text
    assert "T03:30:00.000000Z" in text


def test_the_last_ticks_are_shown(here: InProcess, store: SqlStore) -> None:
    declare(store)
    moved = "UPDATE holdfast_schedules SET next_at = '2026-01-01T00:00:00.000000Z'"
    with store.database.engine.begin() as connection:
        connection.exec_driver_sql(moved)
    [tick, _skipped] = store.fire_schedules("ann").ticks
    shown = here("schedules", "show", "tidy", "--json").succeeded().document
    assert [one["outcome"] for one in shown["ticks"]] == ["fired", "skipped"]
    text = here("schedules", "show", "tidy").succeeded().out
    assert str(tick.job_id) in text
    assert "at least 999 left out, the first of 2026" in text


def test_a_schedule_is_made_changed_paused_run_and_removed(
    holdfast: CommandLine, here: InProcess, store: SqlStore
) -> None:
    made = holdfast(
        *("schedules", "add", "tidy", "--task", "tidy_up", "--every", "10m", "--payload", '{"a": 1}'),
        *("--queue", "slow", "--priority", "3", "--misfire", "all", "--tick", "at", "--json"),
    )
    schedule = made.succeeded().document
    assert (schedule["every_seconds"], schedule["misfire"], schedule["misfire_limit"]) == (600.0, "all", 10)
    assert schedule["job"] == {"payload": {"a": 1}, "queue": "slow", "priority": 3}

    changed = here("schedules", "--json", "set", "tidy", "--cron", "0 9 * * *", "--priority", "4").succeeded().document
    assert (changed["cron"], changed["every_seconds"], changed["job"]["queue"]) == ("0 9 * * *", None, "slow")
    assert "paused" in here("schedules", "pause", "tidy").succeeded().out
    assert here("schedules", "--json").succeeded().document["schedules"][0]["paused_at"] is not None
    job_id = here("schedules", "run", "tidy").succeeded().out.strip()
    assert (store.job(job_id).queue, store.job(job_id).priority) == ("slow", 4)
    assert here("schedules", "resume", "tidy", "--json").succeeded().document["paused_at"] is None
    assert here("schedules", "remove", "tidy", "--json").succeeded().document == {"removed": "tidy"}
    assert store.schedules() == []


def test_what_is_shown_of_a_job_is_json_and_a_pause_is_said(here: InProcess, store: SqlStore) -> None:
    declare(store)
    shown = here("schedules", "show", "tidy").succeeded().out
    assert '{"queue": "slow", "payload": {"a": 1}}' in shown or '{"payload": {"a": 1}, "queue": "slow"}' in shown
    here("schedules", "pause", "tidy").succeeded()
    paused = here("schedules", "show", "tidy").succeeded().out
    assert "It is paused" in paused
    assert "holdfast schedules resume tidy" in paused
    assert "UTC" not in paused


def test_the_tick_argument_is_taken_away_again(here: InProcess, store: SqlStore) -> None:
    declare(store)
    assert here("schedules", "set", "tidy", "--tick", "at", "--json").succeeded().document["tick_argument"] == "at"
    assert here("schedules", "set", "tidy", "--tick", "", "--json").succeeded().document["tick_argument"] is None


def test_a_row_that_cannot_be_read_is_named_beside_the_others_and_removed(here: InProcess, store: SqlStore) -> None:
    declare(store)
    here("schedules", "add", "odd", "--task", "t", "--every", "1h").succeeded()
    with store.database.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE holdfast_schedules SET next_at = 'infinity' WHERE name = 'odd'")
    listed = here("schedules").succeeded()
    assert [line.split()[0] for line in listed.out.splitlines()] == ["schedule", "tidy"]
    assert "odd has next_at = 'infinity'" in listed.err
    assert "holdfast schedules remove odd" in listed.err
    document = here("schedules", "--json").succeeded().document
    assert ([one["name"] for one in document["schedules"]], document["unreadable"][0]["schedule"]) == (["tidy"], "odd")
    here("schedules", "show", "odd").refused("next_at", "holdfast schedules remove odd")
    assert "odd is removed" in here("schedules", "remove", "odd").succeeded().out
    assert here("schedules", "--json").succeeded().document["unreadable"] == []


def test_what_code_declares_is_changed_here_and_reset(here: InProcess, store: SqlStore) -> None:
    declare(store)
    assert "changed here" in here("schedules", "set", "tidy", "--every", "1h").succeeded().out
    assert "changed here" in here("schedules", "show", "tidy").succeeded().out
    assert here("schedules", "reset", "tidy", "--json").succeeded().document["every_seconds"] == 600.0
    removed = here("schedules", "remove", "tidy").succeeded()
    assert "brings it back" in removed.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--task", "t"), ("cron", "every")),
        (("--cron", "0 9 * * *"), ("--task",)),
        (("--task", "t", "--cron", "0 9 * *"), ("cron", "five fields")),
        (("--task", "t", "--cron", "0 0 31 2 *"), ("cron", "never comes", "have no such day")),
        (("--task", "t", "--cron", "0 0 45 2 *"), ("cron", "bad day-of-month")),
        (("--task", "t", "--cron", "* * * * *", "--every", "1h"), ("every", "choose one")),
        (("--task", "t", "--every", "0.5s"), ("every", "at least one second")),
        (("--task", "t", "--every", "soon"), ("every", "duration")),
        (("--task", "t", "--every", "1h", "--timezone", "Mars/Base"), ("timezone", "Europe/Berlin")),
        (("--task", "t", "--every", "1h", "--payload", "[]"), ("payload", "JSON object")),
        (("--task", "t", "--every", "1h", "--priority", "101"), ("priority", "between")),
        (("--task", "t", "--every", "1h", "--misfire", "maybe"), ("misfire", "skip, once, all")),
        (("--task", "t", "--every", "1h", "--misfire-limit", "0"), ("misfire_limit", "between")),
        (("--task", "t", "--every", "1h", "--misfire-grace", "never"), ("misfire_grace", "duration")),
        (("--task", "t", "--every", "1h", "--misfire-grace", "1s"), ("misfire_grace", "at least 5 s")),
    ],
)
def test_what_cannot_work_is_refused_before_there_is_a_file(
    inside: InProcess, words: tuple[str, ...], said: tuple[str, ...]
) -> None:
    inside("schedules", "add", "tidy", *words).refused(*said)
    assert list(inside.folder.iterdir()) == []


def test_what_is_not_there_is_a_no_and_what_makes_no_sense_is_refused(here: InProcess, store: SqlStore) -> None:
    for command in ("show", "pause", "resume", "reset", "remove", "run"):
        done = here("schedules", command, "nightly").said_no()
        assert "there is no schedule nightly" in done.err
    assert here("schedules", "set", "nightly", "--every", "1h").said_no().out == ""
    declare(store)
    here("schedules", "add", "tidy", "--task", "t", "--every", "1h").refused("tidy", "already")
    here("schedules", "set", "tidy").refused("changes", "--cron")
    here("schedules", "set", "tidy", "--misfire-grace", "0s").refused("misfire_grace", "at least 5 s")
    store.add_schedule(Declaration(name="mine", task="t", every_seconds=60))
    here("schedules", "reset", "mine").refused("mine", "operator")
