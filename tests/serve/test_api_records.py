"""Records over HTTP: read by clients and viewers of all queues, deleted by clients; written only under a lease."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from holdfast.domain.errors import ConfigurationError, InvalidInput, NotFound
from holdfast.domain.record import NewRecord
from holdfast.remote.store import RemoteStore
from holdfast.wiring.http import open_control_plane
from tests.serve.grounds import Served

RECORDS = "/api/v1/records"
NOBODY = "0190aaaa-0000-7000-8000-000000000000"


def new(scope: str, key: str, source: str = "shop", data: Any = 1) -> NewRecord:
    return NewRecord(scope=scope, source=source, dedupe_key=key, data=data)


@pytest.fixture
def remote(served: Served) -> Iterator[RemoteStore]:
    remote = open_control_plane(served.url, served.tokens["client"])
    yield remote
    remote.close()


def test_records_are_listed_page_by_page_and_narrowed(served: Served, client: httpx.Client, queue: str) -> None:
    data = {"title": "Ünï/code", "big": 2**70, "price": 19.9, "none": None}
    batch = [new(queue, "ext_1", data=data), new(queue, "ext_2", "fair & co"), new(queue, "ext_3")]
    ids = [written.id for written in served.store.write_records(batch)]

    def found(**wanted: Any) -> list[str]:
        answer = client.get(RECORDS, params={"scope": queue, **wanted})
        assert answer.status_code == 200, answer.text
        return sorted(record["dedupe_key"] for record in answer.json()["records"])

    assert found() == found(source="") == ["ext_1", "ext_2", "ext_3"]
    assert found(source="fair & co") == found(dedupe_key="ext_2") == ["ext_2"]
    assert found(job_id=NOBODY) == []
    first = client.get(RECORDS, params={"scope": queue, "limit": 2}).json()
    rest = client.get(RECORDS, params={"scope": queue, "limit": 2, "after": first["after"]}).json()
    assert (len(first["records"]), len(rest["records"]), rest["after"]) == (2, 1, None)
    one = client.get(f"{RECORDS}/{ids[0]}").json()
    assert one in [*first["records"], *rest["records"]]
    assert (one["data"], one["job_id"], one["source"]) == (data, None, "shop")
    assert one["created_at"].endswith("Z")


def test_a_wrong_question_is_422_and_says_why(client: httpx.Client) -> None:
    wrong: list[dict[str, Any]] = [
        {"limit": 0},
        {"limit": 1001},
        {"after": "x"},
        {"job_id": "x"},
        {"dedupe_key": "k"},
        {"scope": "x" * 201},
        {"scope": "a\x00b"},
        {"scoope": "x"},
    ]
    for parameters in wrong:
        answer = client.get(RECORDS, params=parameters)
        assert (answer.status_code, next(iter(parameters)) in answer.text) == (422, True), answer.text
    assert client.get(f"{RECORDS}/x").status_code == 422
    assert client.get(f"{RECORDS}/{NOBODY}").status_code == 404
    assert client.delete(RECORDS).status_code == 422
    assert client.delete(RECORDS, params={"scope": ""}).status_code == 422


def test_a_parameter_that_counts_once_is_said_once(served: Served, client: httpx.Client, queue: str) -> None:
    served.store.write_records([new(queue, "ext_1")])
    for ask in (client.get, client.delete):
        answer = ask(RECORDS, params=[("scope", queue), ("scope", "other")])
        assert (answer.status_code, answer.json()["field"]) == (422, "scope"), answer.text
        assert "given once" in answer.json()["detail"]
    assert len(served.store.records(scope=queue).items) == 1
    both = client.get("/api/v1/jobs", params=[("state", "pending"), ("state", "failed"), ("queue", queue)])
    assert both.status_code == 200, "this one may be repeated"


def test_records_are_deleted_by_clients(served: Served, client: httpx.Client, queue: str) -> None:
    served.store.write_records(
        [new(queue, f"ext_{number}", source) for number in range(3) for source in ("shop", "fair")]
    )
    served.store.write_records([NewRecord(scope=queue, dedupe_key="single", data=1, replace=True)])

    def delete(**wanted: str) -> Any:
        return client.delete(RECORDS, params={"scope": queue, **wanted}).raise_for_status().json()

    assert delete(source="shop", dedupe_key="ext_1") == {"deleted": 1}
    assert delete(source="") == {"deleted": 1}, "only the one of the scope"
    assert delete(source="fair") == {"deleted": 3}
    assert delete() == {"deleted": 2}
    assert delete() == {"deleted": 0}


def test_who_may_do_what(served: Served, queue: str) -> None:
    [written] = served.store.write_records([new(queue, "ext_1")])
    limited = served.new_token("client", "viewer", queues=(queue,))
    with served.client(token=limited) as client:
        for answer in (
            client.get(RECORDS),
            client.get(f"{RECORDS}/{written.id}"),
            client.delete(RECORDS, params={"scope": queue}),
        ):
            assert answer.status_code == 403
            assert "limited" in answer.json()["detail"]
    with served.client("viewer") as viewer:
        assert viewer.get(f"{RECORDS}/{written.id}").status_code == 200
        assert viewer.delete(RECORDS, params={"scope": queue}).status_code == 403
    with served.client("worker") as worker:
        assert worker.get(RECORDS).status_code == 403
    assert served.store.record(written.id).scope == queue


def test_the_store_over_http_reads_and_deletes_them_too(served: Served, remote: RemoteStore, queue: str) -> None:
    batch = [new(queue, f"ext_{number}", "a&b", {"n": number}) for number in range(3)]
    ids = [written.id for written in served.store.write_records(batch)]
    served.store.write_records([NewRecord(scope=queue, dedupe_key="single", data=1, replace=True)])
    assert remote.record(ids[0]) == served.store.record(ids[0])
    assert remote.records(scope=queue, limit=2) == served.store.records(scope=queue, limit=2)
    page = remote.records(scope=queue, source="a&b", limit=2)
    assert remote.records(scope=queue, source="a&b", limit=2, after=page.after).items[0].data == {"n": 0}
    with pytest.raises(NotFound):
        remote.record(NOBODY)
    with pytest.raises(InvalidInput, match="scope"):
        remote.records(scope="\ud800")
    with pytest.raises(InvalidInput, match="single"):
        remote.records(scope=queue, source="")
    with pytest.raises(InvalidInput, match="scope"):
        remote.delete_records("")
    assert remote.delete_records(queue, "") == 1
    assert remote.delete_records(queue, "a&b", "ext_1") == 1
    assert remote.delete_records(queue) == 2


def test_without_a_lease_nothing_is_written_over_http(remote: RemoteStore, queue: str) -> None:
    with pytest.raises(ConfigurationError, match=r"over HTTP only a running job .* postgresql://"):
        remote.write_records([new(queue, "ext_1")])
    assert remote.records(scope=queue).items == ()
