"""A way to Redis on which nobody waits long: every answer has a time limit, and after a failure Redis is not asked at
all for a while (see `breaker`). Nothing is repeated: what got lost is offered again by the sweeper.

The client library is imported at the first use. That takes a good part of a second, which a command that publishes
nothing need not spend.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.domain.errors import ConfigurationError
from holdfast.forks import after_fork, notice_fork, postponed
from holdfast.transports.redis_streams.breaker import Breaker

if TYPE_CHECKING:
    import redis

Answer = TypeVar("Answer")


class RedisAway(Exception):
    """Redis does not answer, or did not a moment ago."""


class RedisRefused(Exception):
    """Redis answers, and does not do what it was asked for: it is full, or a key is not what it should be. It may well
    do the next thing."""


class Script:
    """A Lua script: sent by its digest, and in full where Redis has forgotten it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class Link:
    def __init__(self, url: str, timeout_seconds: float) -> None:
        self._url = url
        self._timeout = timeout_seconds
        self.breaker = Breaker()
        self._client: redis.Redis | None = None
        after_fork(self._after_fork)

    @property
    def client(self) -> redis.Redis:
        """Not connected yet: it raises a ConfigurationError only for a URL that cannot be read."""
        if self._client is None:
            self._client = connect(self._url, self._timeout)
        return self._client

    def _after_fork(self) -> None:
        """Leave the connections to the parent. The library closes its copies of them without a message."""
        self._client = None

    def run(self, script: Script, keys: list[str], arguments: list[Any]) -> Any:
        """One script, in one round trip."""
        errors = _load_errors()

        def by_digest() -> Any:
            try:
                return self.client.evalsha(script.digest, len(keys), *keys, *arguments)
            except errors.NoScriptError:
                return self.client.eval(script.text, len(keys), *keys, *arguments)

        return self.ask(by_digest)

    def members(self, key: str) -> set[bytes]:
        """Of a set."""
        found: Any = self.ask(lambda: self.client.smembers(key))
        return set(found)

    def remove_members(self, key: str, members: Iterable[bytes]) -> None:
        self.ask(lambda: self.client.srem(key, *members))

    def ask(self, question: Callable[[], Answer]) -> Answer:
        notice_fork()
        errors = _load_errors()
        # Connecting may take as long as the answer, and a script may have to be sent twice.
        if not self.breaker.admits(3 * self._timeout):
            raise RedisAway("Redis is not asked for a while, because it did not answer")
        try:
            answer = question()
        except errors.ResponseError as error:
            if self._is_replica(error):
                self.breaker.failed()
                raise RedisAway(f"{type(error).__name__}: {error}") from error
            self.breaker.worked()
            raise RedisRefused(str(error)) from error
        except (errors.RedisError, OSError, ConfigurationError) as error:
            self.breaker.failed()
            raise RedisAway(f"{type(error).__name__}: {error}") from error
        self.breaker.worked()
        return answer

    def _is_replica(self, error: redis.ResponseError) -> bool:
        with postponed():
            from holdfast.transports.redis_replica import closed_as_replica

        return closed_as_replica(self.client, error)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


def _load_errors() -> Any:
    """A child that is forked while another thread imports a module could never import it."""
    with postponed():
        from redis import exceptions

    return exceptions


def connect(url: str, timeout_seconds: float) -> redis.Redis:
    """No repeating, no waiting beyond the time limit, and the older protocol, which every server speaks."""
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    try:
        client: redis.Redis = redis.Redis.from_url(
            url,
            socket_timeout=timeout_seconds,
            socket_connect_timeout=timeout_seconds,
            socket_keepalive=True,
            health_check_interval=0,
            protocol=2,
            retry=Retry(NoBackoff(), 0),
        )
    except ValueError as error:  # not repeated: the URL may contain a password
        raise ConfigurationError("the Redis URL cannot be read; it must be redis://host:port/number") from error
    return client
