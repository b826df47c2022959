"""Mutants for the script itself: some of the real ones that quick tests kill, one that changes nothing, and one that is
no program any more."""

from scripts.mutants.mutant import Mutant
from scripts.mutants.table import MUTANTS as REAL

QUICK = ("one-failure-too-many", "signature-not-compared")
DECIDES = "    if job.failures + job.crashes + 1 >= job.max_attempts:\n"
KILLER = "unit/test_settle.py::test_max_attempts_bounds_failures_and_crashes_together"
HARMLESS = Mutant(
    "changes-nothing", "None.", "domain/settle.py", DECIDES, DECIDES.replace("+ 1 >=", "+ 1  >="), (KILLER,)
)
NO_PROGRAM = Mutant(
    "no-program", "None.", "domain/settle.py", DECIDES, DECIDES.replace("job.failures", "jobs.failures"), (KILLER,)
)
MUTANTS = (*(mutant for mutant in REAL if mutant.name in QUICK), HARMLESS, NO_PROGRAM)
