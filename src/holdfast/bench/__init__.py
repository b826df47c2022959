"""`holdfast bench`: what a user's own database carries, in about a minute.

ground    the queue that a run has to itself, and how everything goes again
timing    how often, how long, and when to stop
ways      what is measured in this process: round trip, flush, enqueue, claim and settle
member    a real worker in a process of its own, on that queue alone
running   all of it in order
verdict   what the figures mean, in words (pure)
report    the figures
"""
