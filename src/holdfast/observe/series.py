"""Series whose number has a bound.

Labels come from manifests, from users' names for things and from our own words. Should one of them run wild, it must
not fill the scraper's disk: what goes beyond the bound is one series, under `other`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram

MOST_CHILDREN = 2000
OTHER = "other"

STATEMENT_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

Child = TypeVar("Child", bound=Counter | Histogram)


class Children(dict[tuple[str, ...], Child]):
    """The children of a metric by their label values; a miss asks the metric, which takes a lock, once."""

    def __init__(self, labels: Callable[..., Child], names: int) -> None:
        super().__init__()
        self._labels = labels
        self._other = (OTHER,) * names

    def __missing__(self, values: tuple[str, ...]) -> Child:
        if len(self) >= MOST_CHILDREN and values != self._other:
            return self[self._other]
        child = self[values] = self._labels(*values)
        return child


def counter(registry: CollectorRegistry, name: str, text: str) -> Counter:
    return Counter(f"holdfast_{name}", text, registry=registry)


def counters(registry: CollectorRegistry, name: str, text: str, *labels: str) -> Children[Counter]:
    return Children(Counter(f"holdfast_{name}", text, labels, registry=registry).labels, len(labels))


def histogram(registry: CollectorRegistry, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
    return Histogram(f"holdfast_{name}_seconds", text, buckets=buckets, registry=registry)


def histograms(
    registry: CollectorRegistry, name: str, text: str, buckets: tuple[float, ...], *labels: str
) -> Children[Histogram]:
    metric = Histogram(f"holdfast_{name}_seconds", text, labels, buckets=buckets, registry=registry)
    return Children(metric.labels, len(labels))
