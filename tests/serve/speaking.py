"""A worker of a few lines: what anybody who writes one in another language has to say."""

from __future__ import annotations

from typing import Any

import httpx

from tests.serve.grounds import WORKER

Json = dict[str, Any]


def say(client: httpx.Client, verb: str, status: int = 200, **body: Any) -> Json:
    response = client.post(f"{WORKER}/{verb}", json={"worker_id": "tester", **body})
    assert response.status_code == status, response.text
    answer: Json = response.json()
    return answer


def claim(client: httpx.Client, queue: str, **more: Any) -> Json:
    """One job, which there must be."""
    answer = say(client, "claim", streams=[queue], **more)
    assert answer["claimed"], answer
    return answer


def lease(job: Json) -> Json:
    """What a report shows."""
    return {name: job[name] for name in ("job_id", "attempt_id", "lease_token", "stream", "message_id")}


def beat(job: Json) -> Json:
    return {name: job[name] for name in ("job_id", "lease_token")}
