"""`python -m benchmarks.http_client URL CONNECTIONS`: a worker of the plainest kind, one job at a time and connection.

It ends when there is nothing more to claim. The token is in HOLDFAST_TOKEN.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import threading
from typing import Any
from urllib.parse import urlsplit


class Client:
    def __init__(self, url: str, name: str) -> None:
        address = urlsplit(url)
        self._connection = http.client.HTTPConnection(address.hostname or "", address.port)
        self._headers = {
            "Authorization": f"Bearer {os.environ['HOLDFAST_TOKEN']}",
            "Content-Type": "application/json",
        }
        self._name = name

    def ask(self, verb: str, **body: Any) -> dict[str, Any]:
        content = json.dumps({"worker_id": self._name, **body})
        self._connection.request("POST", f"/internal/worker/{verb}", content, self._headers)
        answer = self._connection.getresponse()
        found: dict[str, Any] = json.loads(answer.read())
        assert answer.status == 200, found
        return found

    def work(self) -> None:
        while (job := self.ask("claim", streams=["default"], max_wait_ms=0))["claimed"]:
            known = {name: job[name] for name in ("job_id", "attempt_id", "lease_token", "stream", "message_id")}
            assert self.ask("complete", **known, result=None)["ok"]


def main() -> None:
    url, connections = sys.argv[1], int(sys.argv[2])
    threads = [threading.Thread(target=Client(url, f"client-{number}").work) for number in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
