"""Histories that showed something once, or that are the only ones among many to reach some corner. They are simulated
in every run of the suite. A seed stands for its history only as long as the simulation itself stays as it is: whoever
changes what is drawn from a seed looks for another one that shows the same, with the fix taken out."""

from __future__ import annotations

# Seed: what it shows.
KEPT: dict[int, str] = {
    0: "a client enqueues on a session that was closed while it was idle",
    1: "a worker gets a job whose payload cannot be decoded",
    9: "somebody settles a running job with a token that was never given out",
    13: "two jobs of a source for one are due at once",
    14: "a lease that could not be confirmed in time is given back, and charged to nobody",
    30: "a stranger's heartbeat renews a lease that has expired and that a reaper has read already",
    87: "a worker is cut off from the store for longer than its lease, and its runner would run on",
    136: "a heartbeat's answer is so late that half of the lease is over",
    161: "an error that says nothing about a report comes twice, and a shorter report would be taken",
}
