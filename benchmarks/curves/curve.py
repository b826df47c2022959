"""What a curve found: a table, plots, sentences; and where they go."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.plots import Plot
from benchmarks.tables import markdown

ROOT = Path(__file__).resolve().parents[2]
FIGURES = ROOT / ".cache" / "bench" / "curves"
PICTURES = ROOT / "docs" / "images" / "curves"


@dataclass(frozen=True)
class Curve:
    name: str
    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[object]]
    plots: dict[str, Plot] = field(default_factory=dict)  # by the end of the file's name
    notes: Sequence[str] = ()

    def text(self) -> str:
        said = [f"### {self.title}", markdown(self.headings, self.rows), *self.notes]
        return "\n\n".join(said)

    def write(self, scale: float, seconds: float) -> None:
        """At a small scale the pictures go beside the figures: those in the documents are of the full size."""
        FIGURES.mkdir(parents=True, exist_ok=True)
        content = {
            **asdict(self),
            "scale": scale,
            "seconds": round(seconds, 1),
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "kind": platform.machine()},
        }
        suffix = "" if scale >= 1 else f"@{scale:g}"
        (FIGURES / f"{self.name}{suffix}.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
        folder = PICTURES if scale >= 1 else FIGURES
        for part, plot in self.plots.items():
            plot.write(folder / f"{'-'.join(filter(None, (self.name, part)))}{suffix}.svg")


def spread(values: Sequence[float]) -> float:
    """The largest to the smallest."""
    return max(values) / max(min(values), 1e-9)
