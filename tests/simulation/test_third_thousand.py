"""Seeded histories of the real code under one scheduler: whatever befalls whom, nothing that is promised is broken.

A failing seed is simulated again with `python -m tests.simulation --seeds SEED --trace`. There is a file for each
thousand because files are what the suite's processes share out.
"""

import pytest

from tests.simulation.running import assert_kept, portions, run


@pytest.mark.parametrize("seeds", portions(range(2_000, 3_000)), ids=lambda seeds: f"from {seeds.start}")
def test_no_history_breaks_a_promise(seeds: range) -> None:
    assert_kept(run(seeds))
