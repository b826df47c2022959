"""Two who bring the same one-time link at once: one gets the token, although both have found the link good."""

from collections.abc import Callable

import pytest

from holdfast.domain.tokens import Issued, fits
from holdfast.stores.sql_store import SqlStore
from holdfast.stores.verbs import tokens
from tests.contract.ground import on_postgres


@on_postgres  # SQLite has one writer at a time
def test_who_found_a_link_good_and_came_second_gets_nothing(
    store: SqlStore, open_again: Callable[[], SqlStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    other, link = open_again(), store.create_admin_link(60.0)
    answers: list[Issued | None] = []

    def compare_late(secret: str, digest: str) -> bool:
        """The first thinks about it until the other has used the link."""
        monkeypatch.setattr(tokens, "fits", fits)
        answers.append(other.use_admin_link(link.text))
        return fits(secret, digest)

    monkeypatch.setattr(tokens, "fits", compare_late)
    answers.append(store.use_admin_link(link.text))
    assert [answer is not None for answer in answers] == [True, False]
    assert len(store.tokens()) == 1
