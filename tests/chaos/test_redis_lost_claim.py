"""A claim by messages is committed and its answer gets lost: the worker that asked finds its jobs again."""

import uuid
from collections.abc import Iterator

import pytest

from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.outcome import Released
from holdfast.throwaway.valkey import ValkeyEndpoint
from tests.chaos.proxy import ForgetfulProxy
from tests.transports.streaming import Fleet


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[ForgetfulProxy]:
    with ForgetfulProxy(postgres_url) as proxy:
        yield proxy


def test_the_jobs_of_a_lost_answer_are_found_and_given_back_uncharged(
    proxy: ForgetfulProxy, valkey_server: ValkeyEndpoint
) -> None:
    with Fleet(proxy.url, valkey_server.url, uuid.uuid4().hex) as fleet:
        ids = fleet.enqueue(3)
        proxy.lose_answer_to(b"COMMIT\0")
        with pytest.raises(StoreUnavailable):
            fleet.claim("ann")
        assert proxy.lost == 1
        assert fleet.store.recover("ann", credential="another") == []
        found = fleet.store.recover("ann")
        assert sorted(job.job_id for job in found) == sorted(ids)
        fleet.finish(found, Released())
        again = fleet.claim("bob")
        assert sorted(job.job_id for job in again) == sorted(ids)
        assert {fleet.plain.job(job_id).crashes for job_id in ids} == {0}
        fleet.finish(again)
        fleet.assert_quiet()
        fleet.assert_each_once(3)
