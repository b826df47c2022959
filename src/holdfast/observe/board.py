"""What one process exposes: its registry, and how full its pools of connections are.

`holdfast up` has a worker and a control plane in one process: both write on one board.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Info, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

PoolUse = Callable[[], tuple[int, int] | None]  # its size and how many are in use; None: it is not open, or no pool


class Board:
    def __init__(self, version: str) -> None:
        self.registry = CollectorRegistry()
        self.pools = Pools()
        self.registry.register(self.pools)
        ProcessCollector(registry=self.registry)
        Info("holdfast_build", "The version of Holdfast.", registry=self.registry).info({"version": version})


def encoder_for(accept: str) -> tuple[Callable[[CollectorRegistry], bytes], str]:
    """The form that a scraper asks for, with its content type; the plain one where it asks for what makes no sense."""
    try:
        return choose_encoder(accept)
    except (TypeError, ValueError):
        return choose_encoder("")


class Pools:
    """Read when somebody looks."""

    def __init__(self) -> None:
        self._pools: dict[tuple[str, str], PoolUse] = {}

    def add(self, part: str, pools: dict[str, PoolUse]) -> None:
        """`part` tells a worker's from a control plane's where one process has both."""
        self._pools |= {(part, budget): use for budget, use in pools.items()}

    def collect(self) -> Iterator[Metric]:
        labels = ("part", "budget")
        size = GaugeMetricFamily("holdfast_pool_size", "Database connections that a budget may keep.", labels=labels)
        in_use = GaugeMetricFamily("holdfast_pool_in_use", "Database connections in use right now.", labels=labels)
        for names, use in self._pools.items():
            if (found := use()) is not None:
                size.add_metric(names, found[0])
                in_use.add_metric(names, found[1])
        yield size
        yield in_use
