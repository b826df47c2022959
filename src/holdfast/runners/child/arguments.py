"""The command line of a runner. Only a supervisor writes it: it is read without argparse, which costs start-up time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.domain.manifest import Kind


@dataclass(frozen=True, slots=True)
class Arguments:
    descriptor: int  # our end of the socket pair
    app: str
    kind: Kind
    slots: int
    parent: int
    memory: int = 0  # bytes; 0: no limit
    term_grace_seconds: float = 5.0


def parse(words: Sequence[str]) -> Arguments:
    given = dict(zip(words[::2], words[1::2], strict=True))
    return Arguments(
        int(given["--fd"]),
        given["--app"],
        Kind(given["--kind"]),
        int(given["--slots"]),
        int(given["--parent"]),
        int(given.get("--memory", 0)),
        float(given.get("--term-grace", 5.0)),
    )
