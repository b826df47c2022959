"""The kinds of faults: one function each, and one table of them all.

A fault is called with the stage and the run's dice, does its harm for as long as it lasts, undoes what it has to, and
tells whom it hit. It says before, in words, why it cannot be done where it cannot.
"""

from holdfast.torture.faults.kind import Kind, Struck
from holdfast.torture.faults.table import KINDS, choose

__all__ = ["KINDS", "Kind", "Struck", "choose"]
