"""What things are called in a demo: plainly in a file of its own, and under a prefix in a database of somebody's.

There, queues, sources, scopes of records and tokens are the demo's own, so that it disturbs neither that database's
work nor another demo.
"""

from __future__ import annotations

from dataclasses import dataclass

VARIABLE = "HOLDFAST_DEMO_PREFIX"  # how the workers' processes learn it
GROUP = "demo"  # of the tasks: demo.collect, demo.value_intake, demo.run_model
SOURCES = ("auctionhouse", "bourse", "flea")


@dataclass(frozen=True, slots=True)
class Names:
    prefix: str = ""

    @property
    def models(self) -> str:
        return f"{self.prefix}models"

    @property
    def night(self) -> str:
        """A second queue of model runs, which only the second worker serves."""
        return f"{self.prefix}models-night"

    @property
    def prices(self) -> str:
        return f"{self.prefix}price-watch"

    @property
    def valuations(self) -> str:
        return f"{self.prefix}price-watch-valuations"

    @property
    def queues(self) -> tuple[str, ...]:
        return (self.models, self.prices, self.valuations, self.night)

    def queue_of(self, task: str) -> str:
        return {"run_model": self.models, "collect": self.prices, "value_intake": self.valuations}[task]

    @property
    def capacity(self) -> float:
        """Of the model runs: no two demos in one database ask for the same run, which would be done only once."""
        return 1_000.0 + int(self.prefix.strip("-").rpartition("-")[2] or "0", 16)

    def own(self, name: str) -> str:
        """Of a source, the scope of a record, a token."""
        return f"{self.prefix}{name}"
