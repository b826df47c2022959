"""Functions in a module whose annotations are text."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import holdfast

if TYPE_CHECKING:
    from decimal import Decimal

    from holdfast import Context


def run(a: int, ctx: holdfast.Context) -> None: ...


def only_for_the_checker(ctx: Context, a: int) -> None: ...


def unresolvable(a: int, b: Decimal) -> None: ...


def forward(value: Later) -> None: ...


def returning() -> Later:
    return Later(1)


def returning_foreign() -> threading.Lock: ...  # type: ignore[empty-body]


@dataclass
class Later:
    x: int
