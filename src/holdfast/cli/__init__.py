"""The command line. Importing this costs nothing; the commands are loaded when `main` runs."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        from holdfast.cli.edge import run

        return run(arguments)
    except KeyboardInterrupt:
        return 130  # as shells report a command that Ctrl-C ended
