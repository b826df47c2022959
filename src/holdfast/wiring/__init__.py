"""The one place that knows concrete classes: from settings to things that are ready to use.

sql     a database URL or engine: stores, listeners, what `verify` and `doctor` read
http    a control plane in place of a database; loads no database library
redis   Redis Streams
rq      RQ's queues
"""
