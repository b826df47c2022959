"""examples/model_runs, typed in as its README says, in a copy of it."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

import pytest
from redis import Redis
from rq import Queue

from holdfast.throwaway.valkey import ValkeyEndpoint
from tests.acceptance.command_line import InProcess
from tests.chaos.databases import assert_verified, query
from tests.examples.shell import ROOT, UUID, block, cloned, type_in
from tests.servers.waiting import DEADLINE_SECONDS

README = (ROOT / "examples" / "model_runs" / "README.md").read_text(encoding="utf-8")
QUEUE = "models"


class Clone:
    """What a newcomer has, and what the commands make there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = cloned("model_runs", root)
        self.url = f"sqlite:///{self.folder / 'holdfast.db'}"

    def results(self) -> list[Path]:
        return sorted(self.folder.glob("holdfast-artifacts/*/*/*/run.json"))


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


def lines_with(said: str, text: str) -> list[str]:
    return [line for line in said.splitlines() if text in line]


def test_a_grid_is_run_once_however_often_it_is_asked_for(clone: Clone) -> None:
    said = type_in(block(README, "run: worker"), clone.root)
    assert lines_with(said, "created") == ["6 runs: 6 created, 0 reused", "6 runs: 0 created, 6 reused"]
    shown = block(README, "shown: table")
    assert re.sub(UUID, "ID", said[said.index("growth") :]) == re.sub(UUID, "ID", shown), "the README has the table"

    references = query(clone.url, "SELECT result_ref FROM holdfast_jobs WHERE state = 'succeeded' AND result IS NULL")
    assert sorted(reference for (reference,) in references) == sorted(re.findall(rf"{UUID}/1/run\.json", said))
    assert len(references) == len(clone.results()) == 6
    assert query(clone.url, "SELECT DISTINCT attempt, max_attempts, timeout_seconds FROM holdfast_jobs") == [
        (1, 3, 600)
    ]

    command_line = InProcess(clone.folder)
    job_id = query(clone.url, "SELECT id FROM holdfast_jobs ORDER BY id LIMIT 1")[0][0]
    told = look(command_line, job_id)
    assert told["jobs list"].count("run_model") == 6
    assert "20 of 20" in told["jobs show"]
    assert "started" in told["jobs logs"]
    assert "finished" in told["jobs logs"]
    assert json.loads(told["jobs result"])["spec"] == {
        "growth": 0.1,
        "noise": 0.05,
        "capacity": 1000.0,
        "years": 40,
        "members": 20,
    }
    assert "no violation" in told["verify"]

    again = replayed(clone, command_line, job_id)
    assert len(clone.results()) == 7
    one, other = (next(clone.folder.glob(f"holdfast-artifacts/*/{each}/1/run.json")) for each in (job_id, again))
    assert one.read_bytes() == other.read_bytes(), "the same spec gives the same numbers"
    assert_verified(clone.url)


def look(command_line: InProcess, job_id: str) -> dict[str, str]:
    told = {}
    for line in block(README, "run: look").splitlines():
        words = shlex.split(line.replace("$ID", job_id), comments=True)[1:]
        done = command_line(*words)
        told[" ".join(words[:2])] = done.succeeded().out
    return told


def replayed(clone: Clone, command_line: InProcess, job_id: str) -> str:
    replay, worker, compare = block(README, "run: replay").splitlines()
    words = shlex.split(replay.removeprefix("AGAIN=$(").removesuffix(")").replace("$ID", job_id))
    again = command_line(*words[1:]).succeeded().out.strip()
    type_in(worker, clone.folder)
    command_line(*shlex.split(compare.replace("$AGAIN", again), comments=True)[1:]).succeeded()
    assert query(clone.url, f"SELECT replay_of FROM holdfast_jobs WHERE id = '{again}'") == [(job_id,)]
    return again


@pytest.fixture
def patient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An enqueue tells RQ within 0.25 s or not at all; here it may take longer."""
    site = tmp_path / "patient"
    site.mkdir()
    statement = f"from holdfast.wiring import rq; rq.OFFER_SECONDS = {DEADLINE_SECONDS}\n"
    (site / "sitecustomize.py").write_text(statement)
    path = [str(site), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))


@pytest.mark.usefixtures("patient")
def test_a_stock_rq_worker_runs_the_same_jobs(clone: Clone, valkey_server: ValkeyEndpoint) -> None:
    commands = block(README, "run: rq").replace("redis://localhost:6379/0", valkey_server.url)
    assert valkey_server.url in commands
    said = type_in(commands, clone.folder)
    assert lines_with(said, "created") == ["2 runs: 2 created, 0 reused", "2 runs: 0 created, 2 reused"]
    assert len(clone.results()) == 2
    [[events]] = query(clone.url, "SELECT group_concat(event) FROM (SELECT DISTINCT event FROM holdfast_events)")
    assert sorted(events.split(",")) == ["claimed", "enqueued", "succeeded"]
    assert_verified(clone.url)
    with Redis.from_url(valkey_server.url) as redis:
        queue = Queue(QUEUE, connection=redis)
        assert (queue.count, queue.failed_job_registry.count) == (0, 0)
