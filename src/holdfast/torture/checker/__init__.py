"""The checker: is what everybody was told what is on record, and does what is on record keep the promises?

expectations  what the run knows beforehand: which tasks never fail, which kill their worker, limits, schedules
rules         the rules, each a name and a sentence
judging       all of it in order: `judge`
ledger        reads the run's ledger: tasks and sources of the jobs, ticks, deliveries
answers       what clients and operators were told, held against one job's history
executions    what ran, held against one job's history
charges       what a job's failures and crashes were charged for
disconnects   enqueues that failed while idle connections were closed
limits        how many at once, how many a minute
ticks         schedules
origins       where every job comes from
load          what the run came to, second by second
findings      what was found, and the job that shows it best
"""

from holdfast.torture.checker.expectations import Expectations, LimitedSource, Ticking
from holdfast.torture.checker.judging import Judged, judge
from holdfast.torture.checker.rules import SENTENCES, Rule

__all__ = ["SENTENCES", "Expectations", "Judged", "LimitedSource", "Rule", "Ticking", "judge"]
