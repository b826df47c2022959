"""Every mutant there is, by the part of the product that it is of."""

from __future__ import annotations

from scripts.mutants.mutant import Mutant
from scripts.mutants.table import (
    claims,
    decisions,
    forks,
    guards,
    keeping,
    leases,
    outbound,
    runners,
    serving,
    sources,
    transports,
    workers,
)

_PARTS = (
    leases, claims, guards, decisions, sources, keeping, workers, runners, transports, serving, outbound,
    forks,
)  # fmt: skip
TABLES = tuple(part.__name__ for part in _PARTS)
MUTANTS: tuple[Mutant, ...] = tuple(mutant for part in _PARTS for mutant in part.MUTANTS)
