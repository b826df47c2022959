"""What a kind of fault is."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.torture.stage import HeldJob, Stage


@dataclass(frozen=True, slots=True)
class Struck:
    """What was hit, and what must be well again afterwards. `hits` is 0 when there was nobody to hit."""

    target: str
    detail: str = ""
    doors: tuple[str, ...] = ()
    held: tuple[HeldJob, ...] = ()
    hits: int = 1


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    sentence: str
    strike: Callable[[Stage, random.Random], Struck]
    cannot: Callable[[Stage], str | None]  # why not, here
