"""What a running job wants, over HTTP: records, sources and the cache, under its lease."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from holdfast.domain.answers import Beat
from holdfast.domain.errors import ConfigurationError, InvalidInput, LeaseLost, NotAllowed
from holdfast.domain.events import Event, Events
from holdfast.domain.manifest import TaskInfo
from holdfast.domain.outcome import Released, Report
from holdfast.domain.record import Kept, NewRecord
from holdfast.domain.sources import Cached, End, Entry, Leaving, SourceDeclaration
from holdfast.domain.timing import choose
from holdfast.observe.sentences import sentence
from holdfast.periodic.duties import Duties
from holdfast.periodic.retrying import Retrying
from holdfast.ports import Store
from holdfast.remote.store import RemoteStore
from holdfast.wiring.http import open_control_plane
from tests.chaos.proxy import ForgetfulProxy
from tests.serve.grounds import Served
from tests.servers.waiting import DEADLINE_SECONDS, wait_until

on_sqlite = pytest.mark.parametrize("served_database", ["sqlite"], indirect=True, scope="module")

COIN = NewRecord(scope="coins", source="shop", dedupe_key="ext_1", data={"title": "Dime"}, external_id="1")


@pytest.fixture
def way(served: Served) -> Iterator[ForgetfulProxy]:
    with ForgetfulProxy(served.url) as way:
        yield way


@pytest.fixture
def remote(served: Served, way: ForgetfulProxy) -> Iterator[RemoteStore]:
    remote = open_control_plane(way.url, served.new_token("worker"), timeout_seconds=DEADLINE_SECONDS)
    yield remote
    remote.close()


def claim(served: Served, remote: RemoteStore, queue: str) -> Beat:
    """The lease of a job, shown by a worker of a name that no store holds."""
    served.enqueue(queue)
    [job] = remote.claim("ann", 1, [queue])
    return Beat(job.job_id, job.attempt, job.lease_token, "ann\nann")


@on_sqlite
def test_whatever_answer_is_lost_nothing_is_done_twice(
    served: Served, way: ForgetfulProxy, remote: RemoteStore
) -> None:
    served.store.set_source("shop", max_concurrent=1, rate_limit_per_minute=1)
    lease = claim(served, remote, "lost-answers")

    way.lose_answer_to(b"/source/enter")
    assert remote.enter_source(lease, Entry("shop", 1)).admitted, "there is one place and one token: it has both"
    waits = remote.enter_source(lease, Entry("shop", 2))
    assert (waits.admitted, waits.retry_in > 0) == (False, True)

    way.lose_answer_to(b"/source/leave")
    remote.leave_source(lease, Leaving("shop", 1, End.FAILED, "HTTP\ud800 500"))
    assert served.store.source("shop").failure_streak == 1

    way.lose_answer_to(b"/records")
    [written] = remote.write_records([COIN], lease)
    assert (written.dedupe_key, written.kept) == ("ext_1", Kept.EXISTING), "it was written, by the request before"
    assert served.store.record(written.id).attempt == lease.attempt

    way.lose_answer_to(b"/cache/put")
    remote.keep_cached("shop", "k", {"price": 1}, 600.0, lease)
    assert remote.cached("shop", "k", lease) == Cached({"price": 1})
    assert remote.cached("shop", "other", lease) is None
    assert way.lost == 4


@on_sqlite
def test_a_lost_lease_is_raised_by_each_of_them(served: Served, remote: RemoteStore) -> None:
    lease = claim(served, remote, "lost-leases")
    remote.settle([Report(lease.job_id, lease.attempt, lease.lease_token, Released(), "ann")])
    wants: list[Callable[[], Any]] = [
        lambda: remote.enter_source(lease, Entry("shop", 1)),
        lambda: remote.leave_source(lease, Leaving("shop", 1)),
        lambda: remote.write_records([COIN], lease),
        lambda: remote.cached("shop", "k", lease),
        lambda: remote.keep_cached("shop", "k", 1, 600.0, lease),
    ]
    for want in wants:
        with pytest.raises(LeaseLost, match=rf"{lease.job_id}, attempt 1: .*: refused \(lease_lost\)") as raised:
            want()
        assert lease.lease_token not in str(raised.value)
    refused = {(refusal.verb, refusal.worker): refusal.count for refusal in served.store.refusals(lease.job_id)}
    assert refused == {("source", "ann\ufffdann"): 4, ("record", "ann\ufffdann"): 1}


@on_sqlite
def test_what_cannot_be_sent_is_named_and_without_a_lease_nothing_is(served: Served, remote: RemoteStore) -> None:
    lease = claim(served, remote, "bad-input")
    bad = NewRecord(scope="coins", source="shop", dedupe_key="ext_2", data={"title": float("nan")})
    with pytest.raises(InvalidInput, match=r"records\.1\.data\.title"):
        remote.write_records([COIN, bad], lease)
    with pytest.raises(InvalidInput, match="value"):
        remote.keep_cached("shop", "bad", {1, 2}, 600.0, lease)
    with pytest.raises(InvalidInput, match="source"):
        remote.enter_source(lease, Entry("sh\ud800op", 1))
    with pytest.raises(ConfigurationError, match="only a running job"):
        remote.write_records([COIN])
    with pytest.raises(ConfigurationError, match="only a running job"):
        remote.cached("shop", "k")


@on_sqlite
def test_a_token_of_some_queues_declares_no_limits_and_is_told_once(served: Served, remote: RemoteStore) -> None:
    declared = [SourceDeclaration("declared", {"max_concurrent": 3})]
    limited = open_control_plane(served.url, served.new_token("worker", queues=("mine",)))
    with pytest.raises(NotAllowed, match="not announced: declared"):
        limited.announce_sources(declared)
    limited.announce_sources(declared)
    assert "declared" not in {source.name for source in served.store.sources()}
    limited.close()
    remote.announce_sources(declared)
    assert served.store.source("declared").max_concurrent == 3


@on_sqlite
def test_what_the_token_does_not_allow_is_a_warning_told_once(served: Served) -> None:
    limited = open_control_plane(served.url, served.new_token("worker", queues=("mine",)))
    seen: list[Event] = []
    events = Events(seen.append)
    now = 1_000.0
    duties = Duties(
        lambda: cast(Store, limited),
        "ann",
        lambda: choose(60.0),
        events,
        lambda: None,
        lambda: [TaskInfo("theirs", defaults={"queue": "theirs"})],
        lambda: None,
        Retrying("duties", events, longest=0.1),
        sources=lambda: [SourceDeclaration("forbidden", {"burst": 2})],
    )

    def is_done() -> bool:
        duties.step(now)
        return not duties.pending

    for _ in range(3):
        now += 61.0
        duties.step(now)
        wait_until(is_done, what="the round is over")
    duties.close()
    limited.close()
    told = [sentence(event) for event in seen]
    assert sorted((said.level, said.text, said.fields["duty"]) for said in told) == [
        ("warning", "not allowed, and left out", "announce sources"),
        ("warning", "not allowed, and left out", "announce tasks"),
    ]
    assert any("forbidden" in said.fields["error"] for said in told)
    assert "forbidden" not in {source.name for source in served.store.sources()}
