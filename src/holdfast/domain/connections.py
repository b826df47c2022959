"""How many connections one worker opens to Postgres at most; one for each thread that may wait for an answer.

A runner opens none, unless a job enqueues others: then up to `STORE` of its own, like any client.
"""

from __future__ import annotations

CONTROL = 4  # heartbeats, reports, job logs, and the sender of notifications
CLAIMS = 3  # claims, duties, and the sender of notifications
ASKS = 2  # what running jobs ask for, in workers whose jobs ask
UPKEEP = 2  # chores, and the sender of notifications
LISTENER = 1  # where notifications are on; the only one that must not go through a pooler
WORKER = CONTROL + CLAIMS + ASKS + UPKEEP + LISTENER

STORE = 10  # of a store that a program opens for itself, such as `App`: five are kept
