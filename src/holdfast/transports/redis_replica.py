"""Servers of Redis that have become replicas: their connections are closed, so that the next call opens a new one.

After a switchover behind one address (a virtual IP, DNS, a proxy), open connections still lead to the former primary.
It answers, and refuses every write. The client library keeps such a connection.
"""

from __future__ import annotations

from redis import Redis, ResponseError
from redis.exceptions import MasterDownError, ReadOnlyError


def closed_as_replica(client: Redis, error: ResponseError) -> bool:
    """Whether a replica sent this error. Then the idle connections of the client are closed."""
    # Redis 6 reports errors inside a script as text.
    is_replica = isinstance(error, (ReadOnlyError, MasterDownError)) or "-READONLY " in str(error)
    if is_replica:
        client.connection_pool.disconnect(inuse_connections=False)
    return is_replica
