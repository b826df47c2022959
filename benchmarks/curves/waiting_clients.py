"""`python -m benchmarks.curves.waiting_clients PORT COUNT`: so many plain workers wait at one control plane.

Each long-polls on a connection of its own; who gets a job says how long after its enqueue that was (the payload has the
time) and completes it. The token is in HOLDFAST_TOKEN. It ends when its stdin does."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

MAX_WAIT_MS = 30_000


class Client:
    def __init__(self, port: int, name: str) -> None:
        self._port = port
        self._name = name

    async def work(self, ready: asyncio.Semaphore) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        ready.release()
        while True:
            job = await self._ask("claim", streams=["default"], max_wait_ms=MAX_WAIT_MS)
            if not job["claimed"]:
                continue
            print((time.time() - job["payload"]["at"]) * 1000, flush=True)
            known = {name: job[name] for name in ("job_id", "attempt_id", "lease_token", "stream", "message_id")}
            assert (await self._ask("complete", **known, result=None))["ok"]

    async def _ask(self, verb: str, **body: Any) -> dict[str, Any]:
        content = json.dumps({"worker_id": self._name, **body}).encode()
        head = (
            f"POST /internal/worker/{verb} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {os.environ['HOLDFAST_TOKEN']}\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        self._writer.write(head.encode() + content)
        status, *headers = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        length = next(int(line.split(":")[1]) for line in headers if line.lower().startswith("content-length:"))
        answer: dict[str, Any] = json.loads(await self._reader.readexactly(length))
        assert " 200 " in status, (status, answer)
        return answer


async def main(port: int, count: int) -> None:
    ready = asyncio.Semaphore(0)
    clients = [asyncio.create_task(Client(port, f"client-{number}").work(ready)) for number in range(count)]
    for _ in clients:
        await ready.acquire()
    print("ready", flush=True)
    over = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    done, _ = await asyncio.wait([over, *clients], return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()  # a client that failed says why
    os._exit(0)  # the others are in the middle of a wait


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
