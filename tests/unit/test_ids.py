"""UUIDv7: in order, never twice, whoever asks and however many at once."""

import threading
import time
import uuid

import pytest

from holdfast.stores.ids import _reserve, new_ids


def test_ids_are_uuids_of_version_7() -> None:
    for text in new_ids(1_000):
        parsed = uuid.UUID(text)
        assert str(parsed) == text
        assert parsed.version == 7
        assert parsed.variant == uuid.RFC_4122


def test_ids_carry_their_time() -> None:
    before = time.time_ns() // 1_000_000
    [one] = new_ids(1)
    after = time.time_ns() // 1_000_000
    stamp = int(one.replace("-", "")[:12], 16)
    assert before - 1 <= stamp <= after + 1


def test_ids_sort_in_the_order_they_were_made() -> None:
    ids = [job_id for size in (1, 1, 5_000, 1, 100_000, 1, 3) for job_id in new_ids(size)]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)


def test_no_ids_are_none() -> None:
    assert new_ids(0) == []


def test_threads_never_get_the_same_id_and_each_sees_its_own_in_order() -> None:
    made: list[list[str]] = []
    gate = threading.Barrier(8)

    def make() -> None:
        mine: list[str] = []
        gate.wait()
        for size in (1, 7, 1, 100) * 50:
            mine += new_ids(size)
        made.append(mine)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(mine == sorted(mine) for mine in made)
    everything = [job_id for mine in made for job_id in mine]
    assert len(everything) == len(set(everything)) == 8 * 50 * 109


def test_large_batches_one_after_the_other_stay_in_order() -> None:
    first = new_ids(1)[0]
    ids = [batch[edge] for batch in (new_ids(200_000) for _ in range(3)) for edge in (0, -1)]
    assert [first, *ids] == sorted([first, *ids])
    assert all(uuid.UUID(job_id).version == 7 for job_id in ids)


def test_the_end_of_an_id_cannot_be_guessed() -> None:
    tails = {job_id[-12:] for job_id in new_ids(10_000)}
    assert len(tails) == 10_000


def test_a_millisecond_that_is_full_goes_on_into_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock stands still while more ids are wanted than 26 bits can count."""
    frozen = time.time_ns() + 10**9
    monkeypatch.setattr("holdfast.stores.ids.time.time_ns", lambda: frozen)
    stretches = [_reserve(2**24) for _ in range(20)]
    assert stretches == sorted(stretches)
    assert all(counter + 2**24 <= 2**26 for _, counter in stretches)


def test_a_clock_that_goes_back_does_not_break_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    first = new_ids(1)
    past = time.time_ns() - 3_600 * 10**9
    monkeypatch.setattr("holdfast.stores.ids.time.time_ns", lambda: past)
    assert first < new_ids(1) < new_ids(1)
