"""Digests: a secret cannot be read from the store, and a repeated report is recognised."""

import hashlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.digests import DIGEST_HEX, lease_token, report_digest, token_digest
from holdfast.domain.errors import InvalidInput
from holdfast.domain.outcome import Cancelled, Crashed, Failed, JobError, Outcome, Released, Snoozed, Succeeded
from holdfast.domain.wire import outcome_from_json, outcome_to_json

JOB = "01890a5d-ac96-774b-bcce-b302099a8057"
OTHER = "01890a5d-ac96-774b-bcce-b302099a8058"


def test_a_token_is_the_secret_s_word_about_one_job() -> None:
    secret = b"s" * 32
    assert lease_token(secret, JOB) == hashlib.sha256(secret + bytes.fromhex(JOB.replace("-", ""))).hexdigest()
    assert lease_token(secret, JOB) == lease_token(secret, JOB)
    assert lease_token(secret, JOB) != lease_token(secret, OTHER)
    assert lease_token(secret, JOB) != lease_token(b"t" * 32, JOB)


def test_a_digest_is_short_and_not_the_token() -> None:
    token = lease_token(b"s" * 32, JOB)
    digest = token_digest(token)
    assert len(digest) == DIGEST_HEX == 32
    assert digest not in token
    assert token_digest(digest) != digest


@given(st.text())
def test_any_text_has_a_digest(token: str) -> None:
    assert len(bytes.fromhex(token_digest(token))) == 16


def test_a_lone_surrogate_is_a_token_like_any_other_wrong_one() -> None:
    assert token_digest("\ud800") != token_digest("\udfff")


OUTCOMES: list[Outcome] = [
    Succeeded(),
    Succeeded(None, "ref"),
    Succeeded(0),
    Succeeded(False),
    Succeeded(""),
    Succeeded({"a": 1}),
    Failed(JobError("a", "b")),
    Failed(JobError("a", "b"), exit_code=1),
    Failed(JobError("a", "b", "c")),
    Failed(JobError("a", "b", retryable=False)),
    Failed(JobError("b", "a")),
    Crashed("b"),
    Crashed("b", 9),
    Crashed("b", None, 9),
    Released(),
    Released("deploy"),
    Snoozed(1),
    Snoozed(2),
    Snoozed(1, "why"),
    Cancelled(),
    Cancelled("why"),
]


def test_different_reports_have_different_digests() -> None:
    assert len({report_digest(outcome) for outcome in OUTCOMES}) == len(OUTCOMES)


@pytest.mark.parametrize("outcome", OUTCOMES, ids=repr)
def test_the_same_report_has_the_same_digest(outcome: Outcome) -> None:
    assert report_digest(outcome) == report_digest(replace(outcome))
    assert len(report_digest(outcome)) == DIGEST_HEX


def test_a_result_is_known_by_its_json() -> None:
    assert report_digest(Succeeded({"a": 1, "b": (1, 2)})) == report_digest(Succeeded({"b": [1, 2], "a": 1.0}))


@pytest.mark.parametrize("result", [float("nan"), {1: 2}, {1, 2}, b"", "\x00"], ids=repr)
def test_a_result_that_is_no_json_is_refused_and_named(result: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        report_digest(Succeeded(result), f"result of job {JOB}")
    assert JOB in caught.value.field


def test_a_plain_failure_keeps_the_digest_it_had_before_another_source_could_be_told() -> None:
    plain = Failed(JobError("ValueError", "no", "…", retryable=False), exit_code=3)
    assert report_digest(plain) == "a9def35c3c78d93c9465c3807d2a49e7"
    assert report_digest(replace(plain, told=True)) != report_digest(plain)


def test_what_another_source_was_told_of_is_said_on_the_wire_and_nothing_else_is() -> None:
    plain = Failed(JobError("ValueError", "no"))
    assert "told" not in outcome_to_json(plain)
    for outcome in (plain, replace(plain, told=True)):
        assert outcome_from_json(outcome_to_json(outcome)) == outcome


def test_a_plain_snooze_keeps_the_digest_it_had_before_sources_could_throttle() -> None:
    assert report_digest(Snoozed(30.0, "rate limited")) == "9caff052409d9702412ebff1d765fcc6"
    assert report_digest(Snoozed(30.0, "rate limited", throttled=True)) != "9caff052409d9702412ebff1d765fcc6"
