"""Credentials in the store: shown once, kept as a digest, good until the moment they are not."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.domain.errors import Conflict, InvalidInput, NotFound
from holdfast.domain.tokens import Attempted, Issued, NewToken, Scope, fits, token_parts
from holdfast.stores.sql_store import SqlStore
from tests.contract.ground import ByHand, Clock


def is_good(store: SqlStore, issued: Issued) -> bool:
    parts = token_parts(issued.text)
    assert parts is not None
    standing = store.standings([parts[0]]).get(parts[0])
    return standing is not None and standing.live and fits(parts[1], standing.secret_digest)


def test_a_token_is_nowhere_but_in_the_answer(store: SqlStore, by_hand: ByHand) -> None:
    issued = store.create_token(NewToken("ann", (Scope.CLIENT, Scope.WORKER), ("mail", "default", "mail")))
    token = issued.token
    assert (token.name, token.scopes, token.queues) == ("ann", (Scope.WORKER, Scope.CLIENT), ("mail", "default"))
    assert is_good(store, issued)
    parts = token_parts(issued.text)
    assert parts is not None
    assert (parts[0], len(bytes.fromhex(parts[1]))) == (token.id, 32)
    row = repr(by_hand("SELECT * FROM holdfast_tokens"))
    assert parts[1] not in row
    assert parts[1] not in repr([issued, store.tokens(), store.standings([token.id])])
    assert store.tokens() == [token]


def test_standings_of_many_come_in_one_answer_and_unknown_ids_are_left_out(store: SqlStore) -> None:
    some = [store.create_token(NewToken(f"t{number}", (Scope.VIEWER,))).token for number in range(3)]
    found = store.standings([*(token.id for token in some), "0" * 16])
    assert {standing.name for standing in found.values()} == {"t0", "t1", "t2"}
    assert store.standings([]) == {}


def test_a_name_is_free_again_once_its_token_is_revoked_or_expired(store: SqlStore, clock: Clock) -> None:
    first = store.create_token(NewToken("ann", (Scope.CLIENT,), None, 60.0))
    with pytest.raises(Conflict, match="there is a live token named 'ann'"):
        store.create_token(NewToken("ann", (Scope.CLIENT,)))
    clock.move(59)
    assert is_good(store, first)
    clock.move(2)
    assert not is_good(store, first)
    assert not store.any_live_token()
    with pytest.raises(NotFound):
        store.rotate_token("ann")
    second = store.create_token(NewToken("ann", (Scope.CLIENT,)))
    assert store.any_live_token()
    store.revoke_token("ann")
    assert not is_good(store, second)
    with pytest.raises(NotFound, match="no live token named 'ann'"):
        store.revoke_token("ann")
    third = store.create_token(NewToken("ann", (Scope.ADMIN,)))
    assert is_good(store, third)
    assert store.tokens()[0].id == third.token.id, "the live ones come first"
    assert len(store.tokens()) == 3


def test_a_rotated_token_is_the_same_credential_with_another_secret(store: SqlStore) -> None:
    before = store.create_token(NewToken("ann", (Scope.WORKER,), ("mail",)))
    after = store.rotate_token("ann")
    assert (after.token.id, after.token.queues) == (before.token.id, ("mail",))
    assert after.token.rotated_at is not None
    assert not is_good(store, before)
    assert is_good(store, after)


def test_use_is_written_down_at_most_once_a_minute(store: SqlStore, clock: Clock) -> None:
    token = store.create_token(NewToken("ann", (Scope.WORKER,))).token
    assert token.last_used_at is None

    def last_used() -> object:
        return store.tokens()[0].last_used_at

    store.touch_tokens([token.id, "0" * 16])
    first = last_used()
    assert first is not None
    clock.move(59)
    store.touch_tokens([token.id])
    assert last_used() == first
    clock.move(1)
    store.touch_tokens([token.id])
    assert last_used() != first


def test_a_link_is_worth_one_admin_token_to_whoever_is_first(
    store: SqlStore, open_again: Callable[[], SqlStore]
) -> None:
    link = store.create_admin_link(3600)
    assert store.tokens() == []
    assert not store.any_live_token(), "a link is no token"
    assert not is_good(store, link), "nor can it be used as one"
    assert store.use_admin_link(link.text[:-1] + ("0" if link.text[-1] != "0" else "1")) is None
    assert store.use_admin_link("") is None
    planes = [store, open_again(), open_again(), open_again()]
    with ThreadPoolExecutor(len(planes)) as pool:
        answers = list(pool.map(lambda plane: plane.use_admin_link(link.text), planes))
    [issued] = [answer for answer in answers if answer is not None]
    assert is_good(store, issued)
    assert [token.scopes for token in store.tokens()] == [(Scope.ADMIN,)]
    assert store.use_admin_link(link.text) is None


def test_a_link_that_nobody_used_in_its_time_is_worth_nothing(store: SqlStore, clock: Clock, by_hand: ByHand) -> None:
    link = store.create_admin_link(3600)
    clock.move(3601)
    assert store.use_admin_link(link.text) is None
    store.create_admin_link(3600)
    count = by_hand.count("holdfast_tokens")
    assert count == 1, "links that are over are not kept"


def test_refused_attempts_are_counted_and_the_table_stays_small(store: SqlStore, clock: Clock) -> None:
    store.record_access_refusals(
        [Attempted("", "no_token", "/x", "192.0.2.1", 2), Attempted("id", "wrong_scope", "/x", "a")]
    )
    store.record_access_refusals([Attempted("", "no_token", "/x", "192.0.2.1", 2**31)])
    known = {(r.credential, r.address): r.count for r in store.access_refusals()}
    assert known == {("", "192.0.2.1"): 2**31 - 1, ("id", "a"): 1}

    many = [Attempted("", "no_token", "/x", f"192.0.2.{number}") for number in range(1, 100)]
    for _ in range(2):
        store.record_access_refusals(many, most=2)
    counts = {r.address: r.count for r in store.access_refusals()}
    assert counts == {"192.0.2.1": 2**31 - 1, "a": 1, "*": 196}
    assert len(store.access_refusals(limit=1)) == 1
    clock.move(10)
    store.forget_access_refusals(11)
    assert len(store.access_refusals()) == 3
    store.forget_access_refusals(9)
    assert store.access_refusals() == []


@pytest.mark.parametrize(
    ("name", "scopes", "queues", "expires", "said"),
    [
        ("", ("client",), None, None, "name: must not be empty"),
        ("a\nb", ("client",), None, None, "name"),
        ("a", (), None, None, "scope: a token without one allows nothing"),
        ("a", ("root",), None, None, "scope: must be one of worker, client, viewer, admin, got 'root'"),
        ("a", ("client",), (), None, "queues: name at least one"),
        ("a", ("client",), ("",), None, "queues: must not be empty"),
        ("a", ("admin",), ("mail",), None, "queues: an admin token may do everything"),
        ("a", ("client",), None, 0.0, "expires: must be a time from now on"),
        ("a", ("client",), None, float("nan"), "expires"),
    ],
)
def test_what_breaks_a_rule_is_refused_before_the_store(
    name: str, scopes: tuple[Scope, ...], queues: tuple[str, ...] | None, expires: float | None, said: str
) -> None:
    with pytest.raises(InvalidInput, match=said):
        NewToken(name, scopes, queues, expires)
