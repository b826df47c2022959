"""Search: whatever is asked for, a page is the jobs that match, in order, and the pages together are all of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from holdfast.domain.errors import InvalidInput
from holdfast.domain.job import Job
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Failed, JobError
from holdfast.domain.views import Counted, Found, JobFilter
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.verbs import searching
from tests.contract.steps import claim_this, enqueue, enqueue_many, job_in, postgres_later, settle_well

HOSTILE = ("'; DROP TABLE holdfast_jobs; --", "<script>alert(1)</script>", '%s :task {x} \\ "ü"')


def matches(job: Job, wanted: JobFilter) -> bool:
    code = (job.last_error or {}).get("code")
    return (
        (not wanted.states or job.state in wanted.states)
        and (wanted.queues is None or job.queue in wanted.queues)
        and wanted.task in (None, job.task)
        and wanted.source in (None, job.source)
        and (wanted.spec_hash is None or str(job.spec_hash).startswith(wanted.spec_hash))
        and wanted.worker in (None, job.lease_owner)
        and wanted.error_code in (None, code)
    )


def pages(store: SqlStore, wanted: JobFilter, limit: int, newest_first: bool) -> Iterator[list[str]]:
    after: str | None = None
    while True:
        page = store.search(wanted, limit, after, newest_first)
        yield [item.job.id for item in page.items]
        after = page.after
        if after is None:
            return


def found(store: SqlStore, wanted: JobFilter, limit: int = 4, newest_first: bool = True) -> list[str]:
    return list(itertools.chain.from_iterable(pages(store, wanted, limit, newest_first)))


@pytest.fixture
def jobs(store: SqlStore) -> list[Job]:
    """Some of everything, the rare ones among the oldest."""
    made = [job_in(store, state, task=HOSTILE[0], queue=HOSTILE[1], source=HOSTILE[2]) for state in State]
    for number, state in enumerate(itertools.islice(itertools.cycle(State), 24)):
        queue, source = ("a", "b")[number % 2], (None, "shop")[number // 3 % 2]
        made.append(job_in(store, state, task=f"task{number % 3}", queue=queue, source=source))
    held = claim_this(store, enqueue(store, "odd"))
    settle_well(store, held, Failed(JobError(HOSTILE[0], "no", retryable=False)))
    return [store.job(job_id) for job_id in sorted([*made, held.job_id])]


def filters(jobs: list[Job]) -> Iterator[JobFilter]:
    for states in (
        (),
        (State.FAILED,),
        (State.CANCELLED, State.RUNNING),
        (State.PENDING, State.SUCCEEDED),
        (State.RETRYABLE,),
    ):
        yield JobFilter(states)
        for name in (*HOSTILE, "task1", "a", "shop", "nobody"):
            yield JobFilter(states, task=name)
            yield JobFilter(states, source=name)
            yield JobFilter(states, queues=(name, "b"))
            yield JobFilter(states, queues=(name,), task="task1", source="shop")
            yield JobFilter(states, error_code=name)
        yield JobFilter(states, worker="ann")
        yield JobFilter(states, spec_hash=str(jobs[0].spec_hash)[:6])
        yield JobFilter(states, queues=())


@pytest.mark.parametrize("scarce", [False, True], ids=["one walk is enough", "by every index"])
def test_every_filter_finds_what_it_describes(
    store: SqlStore, jobs: list[Job], scarce: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if scarce:  # the first walk sees two jobs, so that everything has to be found where it is rare
        monkeypatch.setattr(searching, "FIRST_LOOK", 2)
        monkeypatch.setattr(searching, "LOOKS_EACH", 0)
    for wanted in filters(jobs):
        expected = [job.id for job in jobs if matches(job, wanted)]
        assert found(store, wanted, newest_first=False) == expected, wanted
        assert found(store, wanted) == expected[::-1], wanted
        assert store.count_jobs(wanted) == Counted(len(expected))


def test_a_search_that_looks_at_few_rows_says_so_and_goes_on(
    store: SqlStore, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, few in (("FIRST_LOOK", 2), ("LOOKS_EACH", 0), ("MOST_LOOKED", 3), ("MOST_READ", 3), ("MOST_TAKEN", 3)):
        monkeypatch.setattr(searching, name, few)
    monkeypatch.setattr(searching, "MOST_GROUPS", 3)
    for number, wanted in enumerate(filters(jobs)):
        if number % 3:  # a page of three rows is asked for often
            continue
        expected = [job.id for job in jobs if matches(job, wanted)]
        if wanted.spec_hash is not None:
            continue
        assert found(store, wanted, limit=3, newest_first=bool(number % 2)) == expected[:: -1 if number % 2 else 1]
        counted = store.count_jobs(wanted, 2)
        assert counted.count <= min(2, len(expected))
        assert counted.at_least or counted.count == len(expected)
    short = store.search(JobFilter(error_code=HOSTILE[1]), 2)
    assert isinstance(short, Found)
    assert (short.items, short.looked_back_to is not None, short.after is not None) == ((), True, True)


def test_a_spec_that_has_ended_is_found_however_much_waits(
    store: SqlStore, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FIRST_LOOK", "LOOKS_EACH", "MOST_LOOKED"):
        monkeypatch.setattr(searching, name, 1)
    monkeypatch.setattr(searching, "MOST_TAKEN", 10)
    wanted = JobFilter(spec_hash=str(jobs[0].spec_hash)[:6])
    ended = [job.id for job in jobs if matches(job, wanted) and job.finished_at is not None]
    page = store.search(wanted, 6)
    assert isinstance(page, Found)
    assert set(ended) <= {item.job.id for item in page.items}
    assert (page.after, page.looked_back_to is not None) == (None, True)


@pytest.mark.parametrize("wanted", [JobFilter((State.SUCCEEDED,)), JobFilter((State.SUCCEEDED,), queues=("b", "x"))])
def test_what_has_ended_is_found_beneath_a_backlog(
    store: SqlStore, wanted: JobFilter, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, few in (("FIRST_LOOK", 2), ("LOOKS_EACH", 0), ("MOST_LOOKED", 20), ("MOST_TAKEN", 5)):
        monkeypatch.setattr(searching, name, few)
    ended = [
        job_in(store, State.SUCCEEDED, task=task, queue="b") for task in ("one", "two", "one", "two", "one", "one")
    ]
    enqueue_many(store, 25, task="waits", queue="b")
    page = store.search(wanted, 4)
    assert isinstance(page, Found)
    assert ([item.job.id for item in page.items], page.looked_back_to) == (ended[:1:-1], None)
    assert found(store, wanted, limit=4) == ended[::-1]


def test_what_will_be_tried_again_is_found_beneath_a_backlog(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, few in (("FIRST_LOOK", 2), ("LOOKS_EACH", 0), ("MOST_LOOKED", 20), ("MOST_TAKEN", 5)):
        monkeypatch.setattr(searching, name, few)
    again = [job_in(store, State.RETRYABLE) for _ in range(3)]
    enqueue_many(store, 25)
    page = store.search(JobFilter((State.RETRYABLE,)), 4)
    assert isinstance(page, Found)
    assert ([item.job.id for item in page.items], page.looked_back_to) == (again[::-1], None)


def test_a_full_page_is_not_said_to_be_short(store: SqlStore, jobs: list[Job]) -> None:
    page = store.search(JobFilter(), 5)
    assert isinstance(page, Found)
    assert (len(page.items), page.looked_back_to) == (5, None)
    assert page.after == page.items[-1].job.id == jobs[-5].id


def test_more_than_so_many_are_not_counted(store: SqlStore, jobs: list[Job]) -> None:
    assert store.count_jobs(JobFilter(), len(jobs)) == Counted(len(jobs))
    assert store.count_jobs(JobFilter(), 3) == Counted(3, at_least=True)


@pytest.mark.parametrize(
    "wanted",
    [
        JobFilter(spec_hash="abc"),
        JobFilter(spec_hash="ABCDEF"),
        JobFilter(spec_hash="%" * 6),
        JobFilter(task="\x00"),
        JobFilter(queues=("",)),
        JobFilter(states=("lost",)),  # type: ignore[arg-type]
    ],
)
@postgres_later
def test_what_cannot_be_is_refused(store: SqlStore, wanted: JobFilter) -> None:
    with pytest.raises(InvalidInput):
        store.search(wanted)
    with pytest.raises(InvalidInput):
        store.count_jobs(wanted)


def test_an_error_code_that_no_store_holds_is_found_nowhere(store: SqlStore) -> None:
    assert store.search(JobFilter(error_code="\x00")).items == ()
