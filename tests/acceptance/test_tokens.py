"""`holdfast tokens`: the token is printed once, alone; and a server for others is refused until there is one."""

import re

from holdfast.domain.tokens import TOKEN_PATTERN, Attempted
from holdfast.stores.sql_store import SqlStore
from tests.acceptance.command_line import CommandLine, InProcess


def test_a_token_is_printed_once_and_alone(holdfast: CommandLine, here: InProcess, store: SqlStore) -> None:
    made = holdfast("tokens", "create", "ann", "--scope", "worker").succeeded()
    assert re.fullmatch(rf"{TOKEN_PATTERN}\n", made.out)
    assert made.err == "Keep it now: it is not shown again.\n"
    given = ("--scope", "client", "--scope", "worker", "--queues", "mail, default", "--expires", "30d")
    bob = here("tokens", "create", "bob", *given, "--json").succeeded().document
    assert set(bob) == {"id", "name", "token", "scopes", "queues", "expires_at"}
    assert (bob["scopes"], bob["queues"]) == (["worker", "client"], ["mail", "default"])

    shown = here("tokens", "list", "--json").succeeded()
    assert [token["name"] for token in shown.document["tokens"]] == ["ann", "bob"]
    lines = here("tokens", "list").succeeded().out.splitlines()
    assert lines[1].split()[:3] == ["ann", "worker", "all"]
    assert "in 30 d" in lines[2]
    assert made.out.strip()[-64:] not in shown.out
    assert [token.name for token in store.tokens()] == ["ann", "bob"]


def test_a_token_is_rotated_and_revoked_by_name(here: InProcess, store: SqlStore) -> None:
    first = here("tokens", "create", "ann", "--scope", "admin", "--json").document
    second = here("tokens", "rotate", "ann", "--json").succeeded().document
    assert second["id"] == first["id"]
    assert second["token"] != first["token"]
    assert re.fullmatch(rf"{TOKEN_PATTERN}\n", here("tokens", "rotate", "ann").succeeded().out)
    here("tokens", "create", "ann", "--scope", "viewer").refused("name", "there is a live token named 'ann'")
    assert "revoked" in here("tokens", "revoke", "ann").succeeded().out
    assert not store.any_live_token()
    assert "no live token named 'ann'" in here("tokens", "revoke", "ann").said_no().err
    assert "no live token named 'ann'" in here("tokens", "rotate", "ann").said_no().err
    here("tokens", "create", "ann", "--scope", "viewer").succeeded()


def test_wrong_usage_makes_no_token_and_no_file(inside: InProcess) -> None:
    inside("tokens", "create", "ann").refused("--scope")
    inside("tokens", "create", "--scope", "admin").refused("NAME")
    inside("tokens", "create", "ann", "--scope", "root").refused("scope", "worker, client, viewer, admin", "root")
    inside("tokens", "create", "ann", "--scope", "client", "--queues", "a,,b").refused("queues", "empty")
    inside("tokens", "create", "ann", "--scope", "admin", "--queues", "a").refused("queues", "admin")
    inside("tokens", "create", "ann", "--scope", "client", "--expires", "soon").refused("--expires", "duration")
    inside("tokens", "create", " ", "--scope", "client").refused("name", "empty")
    assert "no database file" in inside("tokens", "list").said_no().err
    assert list(inside.folder.iterdir()) == []


def test_who_was_turned_away_is_shown(here: InProcess, store: SqlStore) -> None:
    assert here("tokens", "refusals").succeeded().err == "Nobody was turned away.\n"
    store.record_access_refusals([Attempted("", "no_token", "/api/v1/jobs", "192.0.2.7", 3)])
    [refusal] = here("tokens", "refusals", "--json").succeeded().document["refusals"]
    assert (refusal["reason"], refusal["count"], refusal["address"]) == ("no_token", 3, "192.0.2.7")
    assert "192.0.2.7" in here("tokens", "refusals").succeeded().out


def test_a_server_for_others_is_refused_without_a_token(here: InProcess) -> None:
    here("serve", "--host", "0.0.0.0", "--port", "0").refused("0.0.0.0", "no token", "holdfast tokens create")
