"""What all adapters share: the record that every job writes, and the commands that the harness gives.

Only the standard library: an adapter runs where nothing of ours is installed. The environment says what to use:

  BENCH_PG           URL of the peer's own Postgres database
  BENCH_REDIS        URL of the peer's own Redis database
  BENCH_FOLDER       the peer's own folder, for SQLite
  BENCH_WORKER       which of the workers this is, from 0
  BENCH_CONCURRENCY  jobs at once in a worker
  BENCH_PACE         seconds between jobs whose latency is measured, where the usual would be more than a peer can run
  BENCH_OUT          the file that jobs append their records to
  BENCH_SECONDS      how long a job lasts; only set when workers are killed
  BENCH_PIDS         the file in which such a job says in which process it runs

Commands: `setup`, `enqueue COUNT one|bulk FIRST`, `latency COUNT`, `worker`. Answers are lines of `BENCH {json}`.
"""

import asyncio
import json
import os
import struct
import sys
import time

PG = os.environ.get("BENCH_PG", "")
REDIS = os.environ.get("BENCH_REDIS", "")
FOLDER = os.environ.get("BENCH_FOLDER", ".")
CONCURRENCY = int(os.environ.get("BENCH_CONCURRENCY", "10"))
SECONDS = float(os.environ.get("BENCH_SECONDS", "0"))
CHUNK = 1_000  # jobs in one call, where a peer has a call for many
PACE_SECONDS = float(os.environ.get("BENCH_PACE", "0.02"))  # between two jobs whose latency is measured

_RECORD = struct.Struct("<qd")  # the job's number, and when it began by the machine's monotonic clock
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT
_out = os.open(os.environ["BENCH_OUT"], _APPEND, 0o644) if os.environ.get("BENCH_OUT") else None


def work(number):
    """The job: one atomic append, a microsecond or two."""
    os.write(_out, _RECORD.pack(int(number), time.monotonic()))
    if SECONDS:
        _tell_process(number)
        time.sleep(SECONDS)


async def work_async(number):
    os.write(_out, _RECORD.pack(int(number), time.monotonic()))
    if SECONDS:
        _tell_process(number)
        await asyncio.sleep(SECONDS)


def _tell_process(number):
    told = os.open(os.environ["BENCH_PIDS"], _APPEND, 0o644)
    os.write(told, f"{int(number)} {os.getpid()}\n".encode())
    os.close(told)


def answer(**values):
    print("BENCH " + json.dumps(values), flush=True)


def program(name):
    """A command of the peer's, beside its interpreter."""
    return os.path.join(os.path.dirname(sys.executable), name)  # noqa: PTH118, PTH120 - no more imports than needed


def become(name, *arguments):
    """The worker is a command of the peer's: this process turns into it."""
    path = program(name)
    os.execv(path, [path, *arguments])


def serve(peer):
    """For a peer that blocks: `setup`, `open`, `enqueue`, `bulk`, `worker`, `close`, as far as it has them."""
    command, *arguments = sys.argv[1:]
    if command in ("setup", "worker"):
        getattr(peer, command)()
        return
    if hasattr(peer, "open"):
        peer.open()
    if command == "latency":
        began = []
        for number in range(int(arguments[0])):
            began.append(time.monotonic())
            peer.enqueue(number)
            time.sleep(PACE_SECONDS)
        answer(began=began)
    else:
        numbers, bulk = _numbers(arguments)
        started = time.perf_counter()
        if bulk:
            for chunk in _chunks(numbers):
                peer.bulk(chunk)
        else:
            for number in numbers:
                peer.enqueue(number)
        answer(count=len(numbers), seconds=time.perf_counter() - started)
    if hasattr(peer, "close"):
        peer.close()


def serve_async(peer, run=asyncio.run):
    """The same for a peer of coroutines; a `worker` that is an ordinary function is called outside any loop."""
    if sys.argv[1] == "worker" and not asyncio.iscoroutinefunction(peer.worker):
        peer.worker()
    else:
        run(_serve_async(peer))


async def _serve_async(peer):
    command, *arguments = sys.argv[1:]
    if command in ("setup", "worker"):
        await getattr(peer, command)()
        return
    await peer.open()
    try:
        if command == "latency":
            began = []
            for number in range(int(arguments[0])):
                began.append(time.monotonic())
                await peer.enqueue(number)
                await asyncio.sleep(PACE_SECONDS)
            answer(began=began)
            return
        numbers, bulk = _numbers(arguments)
        started = time.perf_counter()
        if bulk:
            for chunk in _chunks(numbers):
                await peer.bulk(chunk)
        else:
            for number in numbers:
                await peer.enqueue(number)
        answer(count=len(numbers), seconds=time.perf_counter() - started)
    finally:
        await peer.close()


def _numbers(arguments):
    count, mode, first = int(arguments[0]), arguments[1], int(arguments[2])
    return range(first, first + count), mode == "bulk"


def _chunks(numbers):
    for start in range(0, len(numbers), CHUNK):
        yield numbers[start : start + CHUNK]
