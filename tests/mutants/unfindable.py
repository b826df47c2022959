"""A mutant whose test is not there."""

from dataclasses import replace

from tests.mutants.planted import HARMLESS

MUTANTS = (replace(HARMLESS, killers=("unit/test_settle.py::test_that_nobody_has_written",)),)
