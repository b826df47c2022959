"""Every operation that a control plane documents, with a request for each that would work for whoever may ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx

from tests.contract.ground import ByHand
from tests.serve import http
from tests.serve.grounds import WORKER, Served

OPEN = ("/healthz", "/readyz")
FOR_ADMINS = ("/api/v1/tokens", "/api/v1/access-refusals")


@dataclass(frozen=True)
class Operation:
    method: str
    path: str
    has_body: bool

    @property
    def scopes(self) -> set[str]:
        """Whom it is for."""
        if self.path.startswith(WORKER):
            return {"worker", "admin"}
        if self.path.startswith(FOR_ADMINS):
            return {"admin"}
        return {"client", "viewer", "admin"} if self.method == "get" else {"client", "admin"}


@dataclass(frozen=True)
class Held:
    """A job that runs under a lease."""

    job_id: str
    attempt_id: str
    lease_token: str
    stream: str

    @property
    def lease(self) -> dict[str, Any]:
        return {
            "worker_id": "w",
            "job_id": self.job_id,
            "attempt_id": self.attempt_id,
            "lease_token": self.lease_token,
            "stream": self.stream,
            "message_id": None,
        }


def operations(url: str) -> list[Operation]:
    # Made when it is first asked for, which takes a second of a machine that has nothing else to do.
    paths = http.get(f"{url}/openapi.json").raise_for_status().json()["paths"]
    found = [
        Operation(method, path, "requestBody" in operation)
        for path, methods in paths.items()
        for method, operation in methods.items()
        if path not in OPEN
    ]
    assert len(found) > 40
    return found


def held(served: Served, worker: httpx.Client, queue: str) -> Held:
    served.enqueue(queue)
    answer = worker.post(f"{WORKER}/claim", json={"worker_id": "w", "streams": [queue]}).raise_for_status().json()
    return Held(answer["job_id"], answer["attempt_id"], answer["lease_token"], answer["stream"])


def body_for(path: str, job: Held) -> dict[str, Any]:
    error = {"code": "Broken", "message": "no", "retryable": False}
    outcome = {"kind": "succeeded", "result": 1}
    return {
        f"{WORKER}/claim": {"worker_id": "w", "streams": [job.stream]},
        f"{WORKER}/heartbeat": job.lease,
        f"{WORKER}/heartbeats": {"worker_id": "w", "beats": [job.lease]},
        f"{WORKER}/complete": {**job.lease, "result": 1},
        f"{WORKER}/fail": {**job.lease, "error": error},
        f"{WORKER}/release": job.lease,
        f"{WORKER}/reports": {"worker_id": "w", "reports": [{**job.lease, "outcome": outcome}]},
        f"{WORKER}/records": {**job.lease, "records": [{"scope": job.stream, "source": "s", "data": {"title": "a"}}]},
        f"{WORKER}/source/enter": {**job.lease, "source": job.stream, "number": 1},
        f"{WORKER}/source/leave": {**job.lease, "source": job.stream, "number": 1, "end": "failed", "code": "E"},
        f"{WORKER}/cache/get": {**job.lease, "source": job.stream, "key": "k"},
        f"{WORKER}/cache/put": {**job.lease, "source": job.stream, "key": "k", "value": 1, "ttl_seconds": 60},
        f"{WORKER}/announce": {"worker_id": "w", "sources": [{"name": job.stream, "limits": {"burst": 2}}]},
        "/api/v1/jobs": {"task": "send", "payload": {}, "queue": job.stream},
        "/api/v1/jobs/batch": {"jobs": [{"task": "send", "payload": {}, "queue": job.stream}]},
        "/api/v1/tokens": {"name": "mallory", "scopes": ["admin"]},
        "/api/v1/queues/{name}/limit": {"max_running": 0},
        "/api/v1/sources/{name}": {"enabled": False},
        "/api/v1/sources/{name}/pause": {"seconds": 60},
    }.get(path, {})


def request(client: httpx.Client, operation: Operation, job: Held, headers: Any = None) -> httpx.Response:
    path = operation.path.replace("{job_id}", job.job_id).replace("{name}", job.stream)
    path = path.replace("{record_id}", job.job_id)
    return client.request(
        operation.method,
        path,
        params={"seconds": "0"} if path.endswith("/stream") else None,
        json=body_for(operation.path, job) if operation.has_body else None,
        headers=headers,
    )


def standing(by_hand: ByHand) -> dict[str, list[str]]:
    """All that a refused request must leave as it is: everything but the record of refusals and of last use."""
    everything = by_hand.everything()
    del everything["holdfast_access_refusals"], everything["holdfast_refusals"]
    everything["holdfast_tokens"] = [
        repr(by_hand("SELECT id, secret_digest, revoked_at FROM holdfast_tokens ORDER BY id"))
    ]
    return everything
