"""Seeded histories of the real code under one scheduler: no fault breaks a promise, and a seed is one history.

A failing seed is simulated again with `python -m tests.simulation --seeds SEED --trace`.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from collections import Counter

import pytest

from holdfast.domain.lifecycle import Event
from tests.simulation.history import History, simulate
from tests.simulation.kept_seeds import KEPT
from tests.simulation.running import Summary, assert_kept, portions, run, run_in_portions
from tests.simulation.weather import FAULT_KINDS

SUITE = range(500)
LONG = range(100_000, 110_000)
# Nobody has a verb for it; the contract suite types it by hand.
UNREACHED = {Event.REPLACED}

_DIGEST = """
import hashlib, sys
from tests.simulation.history import History, simulate
print(hashlib.sha256("\\n".join(simulate(int(sys.argv[1]), is_told=True).trace).encode()).hexdigest())
"""


def _check_all_was_met(faults: Counter[str], events: Counter[str]) -> None:
    assert {kind for kind in FAULT_KINDS if not faults[kind]} == set()
    assert {event for event in Event if not events[event]} == UNREACHED


@pytest.mark.parametrize("seeds", portions(SUITE), ids=lambda seeds: f"from {seeds.start}")
def test_no_history_breaks_a_promise(seeds: range) -> None:
    assert_kept(run(seeds))


@pytest.mark.parametrize("seed", KEPT, ids=str)
def test_what_was_found_once_stays_fixed(seed: int) -> None:
    assert_kept(run([seed]))


@pytest.mark.timeout(600)
def test_every_kind_of_fault_and_every_event_of_the_lifecycle_is_met_within_a_thousand_histories() -> None:
    faults: Counter[str] = Counter()
    events: Counter[str] = Counter()
    for seed in range(1000):
        result = simulate(seed)
        faults, events = faults + result.faults, events + result.events
        if all(faults[kind] for kind in FAULT_KINDS) and all(events[event] for event in set(Event) - UNREACHED):
            break
    _check_all_was_met(faults, events)


@pytest.mark.parametrize("seed", [3, 5, 9])
def test_a_seed_is_one_history_whatever_was_simulated_before_it(seed: int) -> None:
    first = simulate(seed, is_told=True)
    simulate(seed + 1)
    assert len(first.trace) > 20
    assert simulate(seed, is_told=True) == first


@pytest.mark.parametrize("seed", [3, 9])
def test_nothing_of_a_history_is_left_behind(seed: int) -> None:
    history = History(seed)
    world = weakref.ref(history.world)
    history.run()
    del history
    gc.collect()
    assert world() is None


def test_a_seed_is_one_history_in_every_process() -> None:
    """Also with another order of sets."""
    found = {
        subprocess.run(
            [sys.executable, "-c", _DIGEST, "9"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(found) == 1


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_no_history_of_ten_thousand_breaks_a_promise() -> None:
    summary = Summary()
    for portion in run_in_portions(LONG, processes=2):
        summary.join(portion)
    assert_kept(summary)
    assert summary.histories == len(LONG)
    _check_all_was_met(summary.faults, summary.events)
