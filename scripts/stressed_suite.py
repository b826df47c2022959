"""python -m scripts.stressed_suite: run the test suite on a machine that has little CPU time for it.

No test may depend on speed. Two runs show it:

busy    the suite beside busy processes that load all cores (--processes, default: two for each core)
quota   the suite, its servers and all that it starts in a cgroup whose CPU quota is a quarter of a core for each
        pytest worker (--workers, default: 4, as in `make test` on two cores). Needs Linux and the right to create a
        cgroup, usually root.

Without a name both run, one after the other. What follows `--` goes to pytest. Ends with 1 if a run was red.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from holdfast.throwaway.process import EXEC_CHILD

ROOT = Path(__file__).parents[1]
CGROUPS = Path("/sys/fs/cgroup")
PERIOD_US = 100_000
CORES_PER_WORKER = 0.25


class Impossible(Exception):
    """This machine cannot limit the CPU time of the suite."""


@contextmanager
def beside_busy_processes(count: int) -> Iterator[None]:
    with ExitStack() as stack:
        for _ in range(count):
            process = subprocess.Popen(_dying_with_us(sys.executable, "-I", "-S", "-c", "while True: pass"))
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


@contextmanager
def limited_to(cores: float) -> Iterator[Path]:
    """A new cgroup with this CPU quota."""
    name = f"holdfast-suite-{os.getpid()}"
    quota = int(cores * PERIOD_US)
    if (CGROUPS / "cgroup.controllers").exists():
        group, limits = CGROUPS / name, {"cpu.max": f"{quota} {PERIOD_US}"}
    else:  # version 1: a tree for each controller
        group, limits = CGROUPS / "cpu" / name, {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": str(quota)}
    try:
        group.mkdir()
        for file, value in limits.items():
            (group / file).write_text(value)
    except OSError as error:
        raise Impossible(
            f"{group}: {error.strerror}: a cgroup with a CPU quota needs Linux and usually root. Or limit the whole"
            f" command: systemd-run --user --scope -p CPUQuota={cores:.0%} make test"
        ) from None
    try:
        yield group
    finally:
        _remove(group)


def _remove(group: Path) -> None:
    """The kernel removes a cgroup only after the last of its processes has been waited for."""
    for _ in range(200):
        try:
            group.rmdir()
        except OSError:
            time.sleep(0.1)
        else:
            return
    print(f"left behind, because processes are still in it: {group}", file=sys.stderr)


def run_busy(options: argparse.Namespace) -> int:
    with beside_busy_processes(options.processes):
        return _suite(options)


def run_quota(options: argparse.Namespace) -> int:
    with limited_to(CORES_PER_WORKER * options.workers) as group:
        return _suite(options, lambda: (group / "cgroup.procs").write_text(str(os.getpid())))


RUNS: Mapping[str, Callable[[argparse.Namespace], int]] = {"busy": run_busy, "quota": run_quota}


def _suite(options: argparse.Namespace, enter: Callable[[], object] | None = None) -> int:
    flags = ["-n", str(options.workers), "--dist", "worksteal", "-m", "not long"]
    command = _dying_with_us(sys.executable, "-m", "pytest", *flags, *options.pytest)
    return subprocess.run(command, cwd=ROOT, preexec_fn=enter, check=False).returncode


def _dying_with_us(*command: str) -> list[str]:
    """The command, to be ended by SIGTERM when this process dies."""
    return [sys.executable, "-I", "-S", str(EXEC_CHILD), str(os.getpid()), str(int(signal.SIGTERM)), "-", "-", *command]


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    codes = {}
    for name in [options.run] if options.run else RUNS:
        began = time.monotonic()
        try:
            codes[name] = RUNS[name](options)
        except Impossible as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        minutes = (time.monotonic() - began) / 60
        print(f"{name}: {'green' if codes[name] == 0 else 'RED'} after {minutes:.1f} minutes", flush=True)
    return int(any(codes.values()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m scripts.stressed_suite", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", nargs="?", choices=[*RUNS])
    parser.add_argument("--processes", type=int, default=2 * (os.cpu_count() or 1), metavar="N")
    parser.add_argument("--workers", type=int, default=4, metavar="N")
    parser.add_argument("pytest", nargs="*", help="what goes to pytest, after `--`")
    return parser


if __name__ == "__main__":
    sys.exit(main())
