"""Redis Streams as a way to the jobs. Messages carry ids, never state: whatever happens to Redis, the database knows.

options    what is told: where Redis is, and the figures
link       one connection pool with time limits, and a pause after every failure (breaker)
scripts/   what happens in Redis, one atomic step a file
streams    those steps as methods
publisher  the thread that sends, so that nobody else waits for Redis
listener   the thread that hears of new messages
store      a store whose verbs publish, read and acknowledge messages
sweeper    tops streams up, and puts right what got lost; troubles: the queues where it cannot
"""
