"""Every text of the corpus through the doors for values: refused in words, with nothing changed, or given back as it
was."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast.artifacts.local import LocalArtifacts
from holdfast.domain.artifacts import reference
from holdfast.domain.errors import InvalidInput
from holdfast.domain.job import NewJob
from holdfast.domain.outcome import Failed, JobError, Report, Succeeded
from holdfast.domain.webhook import parse_url
from holdfast.serve.options import Limits
from holdfast.stores.sql_store import SqlStore
from tests.security.corpus import HOSTILE
from tests.serve.grounds import WORKER, Served, serving

NAMES = ("task", "queue", "unique_key", "source", "version")


@pytest.fixture(scope="module")
def served(served_database: str) -> Iterator[Served]:
    with serving(served_database, limits=Limits(requests_per_second=0)) as served:
        yield served


def is_storable(text: str) -> bool:
    """In JSON: neither NUL nor half a character."""
    return "\0" not in text and text.encode(errors="replace").decode() == text


def options(name: str, text: str) -> dict[str, Any]:
    return {"task": "t", "queue": "q", "payload": {}, name: text}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_from_python_is_kept_as_it_was_or_refused(served: Served, name: str) -> None:
    kept = 0
    for text in HOSTILE.values():
        before = served.store.counts()
        if not text.isprintable() or len(text) > 200 or not text.strip():
            with pytest.raises(InvalidInput, match=f"^{name}: "):
                NewJob.from_options(options(name, text))
            assert served.store.counts() == before
            continue
        job_id = served.store.enqueue(NewJob.from_options(options(name, text))).id
        column = "task_version" if name == "version" else name
        assert getattr(served.store.job(job_id), column) == text
        kept += 1
    assert kept > 20


def test_payloads_results_and_errors_are_kept_as_they_were_or_refused(served: Served) -> None:
    for text in HOSTILE.values():
        if not is_storable(text):
            with pytest.raises(InvalidInput, match="payload"):
                NewJob(task="t", payload={"text": text})
            with pytest.raises(InvalidInput, match="payload"):
                NewJob(task="t", payload={text: 1})
            continue
        job_id = served.store.enqueue(NewJob(task="t", payload={text: [text]}, max_attempts=1)).id
        assert served.store.job(job_id).payload == {text: [text]}
        _settle(served.store, job_id, Succeeded({text: text}))
        assert served.store.job(job_id).result == {text: text}
        failing = served.store.enqueue(NewJob(task="t", payload={"text": text}, max_attempts=1)).id
        _settle(served.store, failing, Failed(JobError("E", text, text, retryable=False)))
        error = served.store.job(failing).last_error
        assert error is not None
        assert (error["message"], error["stack"]) == (text, text)


def _settle(store: SqlStore, job_id: str, outcome: Succeeded | Failed) -> None:
    claimed = store.claim_job("w", job_id)
    assert claimed is not None
    store.settle([Report(job_id, claimed.attempt, claimed.lease_token, outcome, "w")])


def test_over_http_it_is_the_same_from_creation_to_the_report(client: httpx.Client, worker: httpx.Client) -> None:
    for number, text in enumerate(HOSTILE.values()):
        queue = f"http-{number}"
        body = {"task": "t", "queue": queue, "payload": {"text": text, text: 1}}
        made = client.post("/api/v1/jobs", content=json.dumps(body), headers={"Content-Type": "application/json"})
        if not is_storable(text):
            assert made.status_code == 422, made.text
            continue
        job_id = made.raise_for_status().json()["id"]
        claimed = worker.post(f"{WORKER}/claim", json={"worker_id": "w", "streams": [queue]}).json()
        assert claimed["payload"] == body["payload"]
        names = ("job_id", "attempt_id", "lease_token", "stream", "message_id")
        report = {**{name: claimed[name] for name in names}, "worker_id": "w", "result": {text: text}}
        assert worker.post(f"{WORKER}/complete", json=report).json()["ok"]
        found = client.get(f"/api/v1/jobs/{job_id}").json()
        assert (found["payload"], found["result"]) == (body["payload"], {text: text})


def test_an_artifact_stays_below_its_root_whatever_it_is_called(tmp_path: Path) -> None:
    root = tmp_path / "below" / "root"
    store = LocalArtifacts(root)
    kept = []
    for text in HOSTILE.values():
        for name in (text, f"a/{text}", f"{text}/b"):
            place = reference(str(uuid.uuid4()), 1, name)
            try:
                store.write(place, b"content")
            except InvalidInput:
                continue
            assert store.read(place) == b"content"
            kept.append(place)
    files = [path for path in tmp_path.rglob("*") if not path.is_dir()]
    assert sorted(str(path.relative_to(root)) for path in files) == sorted(kept)
    assert len(kept) > 20


def test_a_link_in_the_way_of_an_artifact_is_not_followed(tmp_path: Path) -> None:
    store, outside = LocalArtifacts(tmp_path / "root"), tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    job_id = str(uuid.uuid4())
    (tmp_path / "root" / job_id).mkdir(parents=True)
    (tmp_path / "root" / job_id / "1").symlink_to(outside)
    for act in (lambda: store.read(f"{job_id}/1/secret"), lambda: store.write(f"{job_id}/1/secret", b"other")):
        with pytest.raises(Exception, match="symbolic link"):
            act()
    assert (outside / "secret").read_text() == "secret"


def test_a_webhook_is_sent_to_no_place_that_a_text_could_smuggle_in() -> None:
    for text in HOSTILE.values():
        for url in (text, f"https://example.org/{text}", f"https://{text}/", f"https://a:{text}@example.org/"):
            try:
                target = parse_url(url)
            except InvalidInput:
                continue
            assert target.host == "example.org" or target.host in text
            assert target.path.isascii()
            assert target.path.isprintable()
            assert not set(target.path) & set(' "<>#\\')
