"""The report as one HTML file."""

from __future__ import annotations

from holdfast.torture.results import Result


def page(result: Result) -> str:
    raise NotImplementedError
