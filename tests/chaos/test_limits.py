"""A limit of one on a source and on a queue, eight claimers: never more than one at a time."""

from itertools import pairwise
from pathlib import Path

import pytest

from holdfast.stores.sql_store import SqlStore
from tests.chaos.crew import Crew
from tests.chaos.limits import Limit, assert_kept, enqueue, prepare, stretches, work


@pytest.mark.parametrize("each", [200, pytest.param(950, marks=pytest.mark.long)])
def test_limit_of_one_on_a_source_and_on_a_queue(
    store: SqlStore, store_url: str, crew: Crew, tmp_path: Path, each: int
) -> None:
    """The long one makes two thousand claims: some jobs are released on the way, and claimed again."""
    limits = [Limit("source", "narrow", 1), Limit("queue", "single", 1)]
    places = prepare(store, tmp_path, limits)
    enqueue(store, each, source="narrow")
    enqueue(store, each, queues=["single"])
    diaries = crew.run(work, store_url, places, limits)
    assert sum(len(diary.claims) for diary in diaries) > 2 * each
    assert_kept(store_url, limits, diaries, 2 * each)
    for limit in limits:
        assert all(ended <= began for (_, ended), (began, _) in pairwise(stretches(store_url, limit)))
    # The limits were contended: most of the fleet had its share.
    assert sum(1 for diary in diaries if diary.claims) > crew.size // 2
