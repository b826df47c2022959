"""Slow folders first. Each core takes a file at a time: with the slow ones at the end, one of them would have nothing
left to do while the other works through the last."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent
SLOW = ("worker", "pooler", "chaos", "acceptance", "verify", "doors", "remote", "examples", "serve", "migration")


def slow_first(items: list[pytest.Item]) -> None:
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    folder = item.path.relative_to(HERE).parts[0] if item.path.is_relative_to(HERE) else ""
    return SLOW.index(folder) if folder in SLOW else len(SLOW)
