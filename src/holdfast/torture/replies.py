"""Which answers are worth cutting: those that say that something has taken effect.

A recogniser watches one connection. It is told what the client sent, and asked about what the server sends before that
is passed on: `True` means that the request has been carried out and that its answer is about to be given. What goes
through an encrypted connection says nothing to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

# The last message of Postgres's answer to anything: ready for the next query, and not in a transaction.
READY_AND_IDLE = b"Z\0\0\0\x05I"
ROLLED_BACK = b"ROLLBACK\0"
# The first byte of what a client sends: a query, or the parts of a prepared one. Sign-on has none of them.
QUERIES = b"QPBE"


class Recogniser(Protocol):
    def asked(self, data: bytes) -> None: ...

    def answered(self, data: bytes) -> bool: ...


Replies = Callable[[], Recogniser]  # makes one for a connection


class _AnyReply:
    """The first bytes of an answer to whatever was asked."""

    def __init__(self) -> None:
        self._is_asked = False

    def asked(self, data: bytes) -> None:
        self._is_asked = self._is_asked or bool(data)

    def answered(self, data: bytes) -> bool:  # noqa: ARG002 - whatever it is
        was_asked, self._is_asked = self._is_asked, False
        return was_asked


class _AfterPostHttp:
    """The first bytes of an answer to a POST. Requests of a connection follow each other: none is sent ahead."""

    def __init__(self) -> None:
        self._is_post = False
        self._is_answered = True

    def asked(self, data: bytes) -> None:
        if self._is_answered:  # else it is more of the same request's body
            self._is_post = data.startswith(b"POST ")
            self._is_answered = False

    def answered(self, data: bytes) -> bool:  # noqa: ARG002 - a status line, or an early part of one
        found = self._is_post and not self._is_answered
        self._is_answered = True
        return found


class _AfterCommitPostgres:
    """An answer after which no transaction is open: of COMMIT, or of a statement that was one by itself.

    A server sends "ready" at the end of every answer and then waits, so it is at the end of what was read. It is not
    told from a read whether a statement changed anything: in Holdfast, a SELECT of a function may have.
    """

    def __init__(self) -> None:
        self._is_query = False
        self._end = b""

    def asked(self, data: bytes) -> None:
        self._is_query = data[:1] != b"" and data[:1] in QUERIES
        self._end = b""

    def answered(self, data: bytes) -> bool:
        self._end = (self._end + data)[-64:]
        return self._is_query and self._end.endswith(READY_AND_IDLE) and ROLLED_BACK not in self._end


def any_reply() -> Recogniser:
    return _AnyReply()


def after_post_http() -> Recogniser:
    return _AfterPostHttp()


def after_commit_postgres() -> Recogniser:
    return _AfterCommitPostgres()
