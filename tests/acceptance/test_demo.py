"""`holdfast demo` keeps its promises, on both stores, and says what it shows."""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil

from tests.acceptance.command_line import CommandLine, InProcess
from tests.servers.waiting import wait_until

EXPECTED = {"succeeded": 99, "failed": 1, "cancelled": 1}


def test_it_shows_everything_in_words_and_touches_no_job_but_its_own(holdfast: CommandLine, here: InProcess) -> None:
    mine = here("enqueue", "demo.square", '{"mine": true}').succeeded().out.strip()

    done = holdfast("demo").succeeded()

    for part in ("100 jobs stored in one call", "cancels", "zombie", "lease_lost", "0 violations", "as promised"):
        assert part in done.out
    assert "store: " in done.err
    assert here("jobs", "show", mine, "--json").succeeded().document["seq"] == 1


def test_its_summary_is_one_document(tmp_path: Path, empty_database: str) -> None:
    """On a database without tables: it upgrades it. What it leaves there can be looked at afterwards."""
    shown = CommandLine(tmp_path)("demo", "--database", empty_database, "--json").succeeded().document

    assert (shown["ok"], shown["broken"], shown["states"]) == (True, [], EXPECTED)
    assert shown["settled"] | {"succeeded": 98, "retry_scheduled": 4, "crashed": 1, "snoozed": 1} == shown["settled"]
    assert [(refusal["verb"], refusal["reason"]) for refusal in shown["zombie"]["refusals"]] == [
        ("complete", "lease_lost"), ("heartbeat", "lease_lost"), ("release", "lease_lost"),
    ]  # fmt: skip
    here = InProcess(tmp_path, empty_database)
    assert here("verify", "--json").succeeded().document["jobs"] == 101
    zombie = here("jobs", "show", shown["zombie"]["job_id"], "--json").succeeded().document
    assert [event["event"] for event in zombie["events"]] == [
        "enqueued", "claimed", "lease_lost", "claimed", "succeeded",
    ]  # fmt: skip
    assert len(zombie["refusals"]) == 3


def test_with_no_database_named_it_leaves_nothing_behind_and_lets_the_configured_store_be(bare: CommandLine) -> None:
    scratch = bare.folder / "scratch"
    scratch.mkdir()

    done = bare("demo", "--json", DATABASE_URL="sqlite:///precious.db", TMPDIR=str(scratch)).succeeded()

    assert done.document["ok"] is True
    assert list(scratch.iterdir()) == []
    wait_until(lambda: not _started_below(scratch), what="its workers have ended")

    assert not (bare.folder / "precious.db").exists()


def test_an_interrupt_ends_it_quietly(bare: CommandLine) -> None:
    scratch = bare.folder / "scratch"
    scratch.mkdir()
    process = subprocess.Popen(
        bare.arguments("demo"),
        cwd=bare.folder,
        env=bare.environment(TMPDIR=str(scratch), PYTHONUNBUFFERED="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()  # it has begun
    os.kill(process.pid, signal.SIGINT)
    started = time.monotonic()
    _out, err = process.communicate(timeout=30)

    assert process.returncode == 130
    assert time.monotonic() - started < 10
    assert "Traceback" not in err
    assert list(scratch.iterdir()) == []
    wait_until(lambda: not _started_below(scratch), what="its workers have ended")


def _started_below(scratch: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("TMPDIR") == str(scratch) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found
