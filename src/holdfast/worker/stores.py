"""The worker's ways to the store, so that slow claims never hold up a heartbeat or a report.

control   heartbeats, reports, job logs
claims    claims, duties, and the first look at the store
asks      what running jobs ask for
upkeep    chores for the whole fleet, one batch at a time

How many connections that makes is in `domain/connections.py`.
Each is a `periodic.lazy_store.LazyStore`: opened when it is first needed and tried again until it can be.
"""

from __future__ import annotations

CONNECTIONS = 3
