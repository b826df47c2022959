"""Ours and other job queues for Python, side by side: the same work, the same machine, one run.

    python -m benchmarks.peers                              # everything; hours, mostly waiting for a quiet moment
    python -m benchmarks.peers --quick                      # the settings that are known to be best, fewer repeats
    python -m benchmarks.peers pgqueuer huey-sqlite --phases drain
    python -m benchmarks.peers report                       # the newest run as markdown; plots into docs/images

How it measures: every job appends one record of 16 bytes (its number, the monotonic clock) to one file that all workers
share. From that file come starts, lost jobs and jobs that ran twice. A drain's rate is the number of jobs over the time
from the first job's start until the *store* shows all of them done. Before each measurement the peer's database is made
anew, vacuumed and checkpointed. A measurement during which something else on the machine used more than a quarter of a
core is repeated. Rates are compared between neighbours in time only.
"""
