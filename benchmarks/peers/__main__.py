from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from benchmarks.peers import __doc__ as description
from benchmarks.peers import results
from benchmarks.peers.report import IMAGES, plots, render
from benchmarks.peers.run import PHASES, Options, run
from benchmarks.peers.variants import VARIANTS


def main() -> int:
    if sys.argv[1:2] == ["report"]:
        return report(sys.argv[2:])
    options = parsed(sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # whoever is told to stop ends what they started
    path = run(options)
    print(f"\nwritten: {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path.name}\n")
    print(render(results.load(path)))
    return 0


def report(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers report", description="A run as markdown, and plots."
    )
    parser.add_argument("files", nargs="*", type=Path, help="the JSON of one or several runs (default: the newest)")
    parser.add_argument("--images", type=Path, default=IMAGES, help="where the plots go (default: docs/images)")
    options = parser.parse_args(arguments)
    found = results.merged([results.load(path) for path in options.files or [results.newest()]])
    options.images.mkdir(parents=True, exist_ok=True)
    for name, svg in plots(found).items():
        (options.images / name).write_text(svg)
    print(render(found))
    return 0


def parsed(arguments: list[str]) -> Options:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("variants", nargs="*", help=f"which: {', '.join(VARIANTS)} (default: all)")
    parser.add_argument("--phases", nargs="+", choices=PHASES, help="default: all, with --quick all but tune")
    parser.add_argument("--rounds", type=int, help="how often each is measured (default: 3, with --quick 2)")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the full size, such as 0.1")
    parser.add_argument("--quick", action="store_true", help="only settings known to be best, fewer repeats")
    parser.add_argument("--upgrade", action="store_true", help="make the peers' environments anew")
    parser.add_argument("--recovery-limit", type=float, default=150.0, help="seconds to wait for a job of the dead")
    chosen = parser.parse_args(arguments)
    unknown = [name for name in chosen.variants if name not in VARIANTS]
    if unknown:
        parser.error(f"nothing is called {unknown[0]!r}; there are {', '.join(VARIANTS)}")
    return Options(
        variants=chosen.variants or list(VARIANTS),
        phases=chosen.phases or [phase for phase in PHASES if not (chosen.quick and phase == "tune")],
        rounds=chosen.rounds or (2 if chosen.quick else 3),
        scale=chosen.scale,
        upgrade=chosen.upgrade,
        tries=1 if chosen.quick else 3,
        idle_seconds=10.0 if chosen.quick else 20.0,
        recovery_limit=chosen.recovery_limit,
    )


if __name__ == "__main__":
    sys.exit(main())
