"""`python -m holdfast.torture.contract_client`: a worker with nothing but HTTP, as somebody would write it from the
contract's one page, who writes down every answer.

It claims with request ids and asks again when an answer is lost; it reports until it is answered; and now and then it
sleeps past its lease and reports all the same, which must be refused.
"""

from __future__ import annotations

import random
import sys
import time
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx

from holdfast.domain.digests import token_digest
from holdfast.domain.tokens import token_parts
from holdfast.torture import tasks
from holdfast.torture.errand import Errand, errand
from holdfast.torture.notes import Claimed, Notebook, Reported

TASKS = ("tough.quick", "tough.flaky", "tough.metered", "tough.narrow")
LONGEST_ANSWER_SECONDS = 5.0
REST_SECONDS = 0.3
POLL_MS = 1_000
UNKNOWN = {502, 503, 504}


class ContractClient:
    def __init__(self, options: Errand) -> None:
        self._options = options
        self._chance = random.Random(f"{options.seed}-{options.name}-{options.life}")
        self._notebook = Notebook(Path(options.notes), options.name)
        self._http = httpx.Client(
            headers={"Authorization": f"Bearer {options.token}"}, timeout=LONGEST_ANSWER_SECONDS, trust_env=False
        )
        parts = token_parts(options.token)
        assert parts is not None
        self._credential = parts[0]
        self._worker = f"{options.name}-{options.life}"

    def run(self) -> None:
        """Until it is killed."""
        while True:
            for job in self._claim():
                self._work(job)

    def _claim(self) -> list[dict[str, Any]]:
        question = {
            "worker_id": self._worker,
            "streams": list(tasks.QUEUES),
            "tasks": list(TASKS),
            "max_wait_ms": POLL_MS,
            "limit": self._chance.randint(1, 4),
            "request_id": uuid.UUID(int=self._chance.getrandbits(128)).hex,
        }
        jobs: list[dict[str, Any]] = self._told("claim", question).get("jobs") or []
        for job in jobs:
            self._notebook.write(Claimed(job["job_id"], job["attempt"], self._lease(job), self._worker))
        return jobs

    def _work(self, job: dict[str, Any]) -> None:
        held = {name: job[name] for name in ("job_id", "attempt_id", "lease_token", "stream", "message_id")}
        act = self._chance.random()
        if act < 0.05:
            time.sleep(self._options.lease_seconds * self._chance.uniform(1.5, 2.5))
        elif act < 0.3:
            beat = {name: held[name] for name in ("job_id", "lease_token")}
            self._told("heartbeat", {"worker_id": self._worker, **beat})
        if job["task"] == "tough.flaky" and act < 0.5:
            error = {"code": "Told", "message": "told to fail", "stack": None, "retryable": True}
            self._report(job, "fail", {**held, "error": error})
        elif act > 0.9:
            self._report(job, "release", held)
        else:
            self._report(job, "complete", {**held, "result": {"by": self._worker}})

    def _report(self, job: dict[str, Any], verb: str, report: dict[str, Any]) -> None:
        answer = self._told(verb, {"worker_id": self._worker, **report})
        self._notebook.write(
            Reported(job["job_id"], job["attempt"], self._lease(job), verb, bool(answer["ok"]), answer.get("reason"))
        )

    def _lease(self, job: dict[str, Any]) -> str:
        return token_digest(job["lease_token"], self._credential)

    def _told(self, verb: str, question: dict[str, Any]) -> dict[str, Any]:
        """Asked until there is an answer, of whichever control plane."""
        while True:
            url = f"{self._chance.choice(self._options.planes)}/internal/worker/{verb}"
            try:
                answer = self._http.post(url, json=question)
            except httpx.HTTPError:
                time.sleep(REST_SECONDS)
                continue
            if (found := _body(answer)) is not None:
                return found
            if answer.status_code not in UNKNOWN:
                print(f"{verb}: {answer.status_code} {answer.text[:500]}", file=sys.stderr)
            time.sleep(REST_SECONDS)

    def close(self) -> None:
        self._http.close()
        self._notebook.close()


def _body(answer: httpx.Response) -> dict[str, Any] | None:
    """None for anything that a control plane does not send, such as a page with status 200."""
    try:
        found = answer.json() if answer.status_code == 200 else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def main() -> int:
    with closing(ContractClient(errand())) as client:
        client.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
