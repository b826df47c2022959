"""Histories that showed something once, or that are the only ones among many to reach some corner. They are simulated
in every run of the suite. A seed stands for its history only as long as the simulation itself stays as it is: whoever
changes what is drawn from a seed looks for another one that shows the same, with the fix taken out."""

from __future__ import annotations

# Seed: what it shows.
KEPT: dict[int, str] = {}
