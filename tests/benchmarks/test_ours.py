"""Ours through the whole harness, at its smallest: real servers, real workers. Peers are not installed for tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.peers import recovery, references
from benchmarks.peers.bench import Bench
from benchmarks.peers.environments import OURS, prepare
from benchmarks.peers.servers import Servers, running
from benchmarks.peers.variants import HOLDFAST_POSTGRES, HOLDFAST_SQLITE, VARIANTS

pytestmark = pytest.mark.long
SMALLEST = 0.001


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with running() as started:
        yield started


@pytest.fixture(params=[HOLDFAST_POSTGRES, HOLDFAST_SQLITE])
def bench(servers: Servers, request: pytest.FixtureRequest) -> Bench:
    return Bench(servers, VARIANTS[request.param], prepare(OURS), SMALLEST)


def test_every_job_of_a_drain_runs_once(bench: Bench) -> None:
    found = bench.drain(2, 0)
    assert (found["lost"], found["doubled"]) == (0, 0)
    assert found["rate"] > 0


def test_enqueues_one_by_one_and_in_bulk_have_a_rate(bench: Bench) -> None:
    assert bench.enqueue_rate("one")["rate"] > 0
    assert bench.enqueue_rate("bulk")["rate"] > 0


def test_a_job_whose_runner_is_killed_begins_again(bench: Bench) -> None:
    found = recovery.runner_killed(bench, 0, limit=60.0)
    assert found is not None
    assert (found["cut"], found["missing"]) == (1, 0)


def test_what_an_enqueue_sends_can_be_sent_again_without_our_code(servers: Servers) -> None:
    bench = Bench(servers, VARIANTS[HOLDFAST_POSTGRES], prepare(OURS), SMALLEST)
    assert references.bare_insert(bench)["rate"] > 0
    assert references.claim_and_settle(servers, SMALLEST)["rate"] > 0
