"""A way to Postgres that remembers what was asked on it."""

from __future__ import annotations

from tests.chaos.proxy import ForgetfulProxy

# The first byte of what a client sends: a simple query, the Parse of an extended one, or the Bind of one that was
# prepared. Sign-on has none of them.
SIMPLE, EXTENDED, PREPARED = b"Q", b"P", b"B"
BRACKETS = (b"BEGIN", b"COMMIT", b"ROLLBACK")


class CountingProxy(ForgetfulProxy):
    """Counts statements. Each is sent as a whole and answered before the next; BEGIN and COMMIT are not counted."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.statements: list[bytes] = []

    def is_to_be_lost(self, question: bytes) -> bool:
        if question[:1] in (SIMPLE, EXTENDED, PREPARED):
            text = question[5:].lstrip(b"\0")
            if not text.startswith(BRACKETS):
                self.statements.append(text)
        return super().is_to_be_lost(question)
