"""Names and references of artifacts: what they may be, and that nothing else is let through."""

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.artifacts import (
    MAX_ARTIFACT_NAME,
    MAX_SEGMENT,
    Artifact,
    ArtifactRef,
    LiveArtifacts,
    check_artifact,
    check_artifact_name,
    check_own_name,
    parse_reference,
    reference,
)
from holdfast.domain.errors import InvalidInput
from holdfast.domain.spec import canonical_json, check_json, encode_json
from tests.artifacts.names import BAD_NAMES

JOB = "01890a5d-ac96-774b-bcce-b302099a8057"
GOOD = [
    "a",
    "page.html",
    "pages/1.html",
    "a/b/c/d.json",
    "Ünïcode-名前.txt",
    "a b.txt",
    "x" * MAX_SEGMENT,
    "%2e%2e",
    "~",
]


@pytest.mark.parametrize("name", GOOD)
def test_a_plain_relative_name_is_one(name: str) -> None:
    assert check_artifact_name(name) == name
    assert parse_reference(reference(JOB, 3, name)) == (JOB, 3, name)


@pytest.mark.parametrize(("name", "rule"), BAD_NAMES.items())
def test_any_other_name_is_refused_and_the_rule_is_named(name: Any, rule: str) -> None:
    for check in (check_artifact_name, check_own_name):
        with pytest.raises(InvalidInput, match=rule):
            check(name)
    with pytest.raises(InvalidInput):
        parse_reference(f"{JOB}/1/{name}")


@pytest.mark.parametrize("name", [None, 1, b"a", ["a"]])
def test_what_is_no_text_is_no_name(name: Any) -> None:
    with pytest.raises(InvalidInput, match="must be a string"):
        check_artifact_name(name)


@pytest.mark.parametrize("name", ["result.json", "RESULT.json", "result-2.json"])
def test_names_of_large_results_are_the_engines(name: str) -> None:
    assert check_artifact_name(name) == name
    with pytest.raises(InvalidInput, match="where a large result goes"):
        check_own_name(name)


@pytest.mark.parametrize(
    "value",
    [
        "",
        JOB,
        f"{JOB}/1",
        f"{JOB}/1/",
        f"{JOB}//a",
        f"{JOB}/-1/a",
        f"{JOB}/01/a",
        f"{JOB}/1 /a",
        f"{JOB}/٣/a",
        f"{JOB}/99999999999/a",
        f"{JOB.upper()}/1/a",
        f"{{{JOB}}}/1/a",
        JOB.replace("-", "") + "/1/a",
        f"/{JOB}/1/a",
        f"../{JOB}/1/a",
        f"other/{JOB}/1/a",
        f"{JOB}/1/../../../etc/passwd",
        "/etc/passwd",
        "s3://bucket/key",
        "file:///etc/passwd",
        None,
        7,
    ],
)
def test_nothing_but_the_one_spelling_is_a_reference(value: Any) -> None:
    with pytest.raises(InvalidInput):
        parse_reference(value)


@given(st.text(alphabet=string.printable + "./\\:*?[]\0…\u2024\u0301é", max_size=40))
def test_whatever_passes_stays_below_its_folder(name: str) -> None:
    try:
        check_artifact_name(name)
    except InvalidInput:
        return
    parts = name.split("/")
    assert not name.startswith("/")
    assert all(part.strip(". ") and part not in (".", "..") for part in parts)
    assert len(name.encode()) <= MAX_ARTIFACT_NAME


def test_a_reference_is_text_to_json() -> None:
    saved = reference(JOB, 1, "a")
    assert isinstance(saved, ArtifactRef)
    check_json({"page": [saved]}, "value")
    assert encode_json({"page": saved}) == f'{{"page":"{saved}"}}'
    assert canonical_json({"page": saved, "n": 0.5}) == f'{{"n":0.5,"page":"{saved}"}}'.encode()


def test_a_report_may_only_speak_of_its_own_files() -> None:
    good = Artifact(JOB, 2, "a", "text/plain", 3, "0" * 64)
    assert check_artifact(good, JOB, 2) is good
    wrong = [
        Artifact(JOB, 1, "a", "text/plain", 3, "0" * 64),
        Artifact(JOB, 2, "../a", "text/plain", 3, "0" * 64),
        Artifact(JOB, 2, "a", "", 3, "0" * 64),
        Artifact(JOB, 2, "a", "text/plain", -1, "0" * 64),
        Artifact(JOB, 2, "a", "text/plain", 3, "0" * 63),
    ]
    for artifact in wrong:
        with pytest.raises(InvalidInput, match="artifacts: "):
            check_artifact(artifact, JOB, 2)


def test_what_is_on_record_or_running_is_needed() -> None:
    live = LiveArtifacts(frozenset([f"{JOB}/1/a"]), frozenset([(JOB, 3)]))
    assert live.needs(JOB, 1, f"{JOB}/1/a")
    assert live.needs(JOB, 3, f"{JOB}/3/anything")
    assert not live.needs(JOB, 1, f"{JOB}/1/b")
    assert not live.needs(JOB, 2, f"{JOB}/2/a")
