"""`holdfast doctor` from outside: its exit codes, its two forms, and its page."""

import re
from pathlib import Path

from holdfast.doctor import CHECKS
from holdfast.domain.findings import Severity
from tests.acceptance.command_line import CommandLine, InProcess
from tests.doctor.conftest import Ground

PAGE = Path(__file__).parents[2] / "docs" / "doctor.md"


def test_in_good_order(file: Ground) -> None:
    done = CommandLine(file.folder, file.url)("doctor").succeeded()
    assert "Everything is in order." in done.out


def test_the_document(file: Ground) -> None:
    document = InProcess(file.folder, file.url)("doctor", "--json").succeeded().document
    assert document["ok"] is True
    assert set(document["findings"][0]) == {"check", "severity", "found", "advice"}
    assert {finding["severity"] for finding in document["findings"]} <= set(Severity)


def test_a_problem_is_exit_code_1_and_a_warning_is_none(file: Ground) -> None:
    doctor = InProcess(file.folder, file.url)
    warned = doctor("doctor", "--quiet", HOLDFAST_ARTIFACT="x").succeeded()
    assert "WARNING  environment: " in warned.out
    assert "→ Did you mean HOLDFAST_ARTIFACTS?" in warned.out
    assert "0 problems, 1 warning." in warned.out
    assert "ok  " not in warned.out
    file("DROP TRIGGER holdfast_retire")
    done = doctor("doctor", "--json").said_no()
    assert done.document["ok"] is False


def test_wrong_settings_are_findings_too(file: Ground) -> None:
    done = InProcess(file.folder, file.url)("doctor", "--quiet", LEASE_SECONDS="0").said_no()
    assert "PROBLEM  settings: LEASE_SECONDS" in done.out


def test_a_store_that_does_not_answer_is_a_finding_and_exit_code_3(tmp_path: Path) -> None:
    done = InProcess(tmp_path, "postgresql://someone:hunter2@127.0.0.1:1/jobs")("doctor", "--json")
    assert done.code == 3
    assert "hunter2" not in done.out + done.err
    [finding] = [finding for finding in done.document["findings"] if finding["severity"] == "problem"]
    assert finding["check"] == "store"
    memory = InProcess(tmp_path, "sqlite://")("doctor", "--quiet").said_no()
    assert "PROBLEM  store: " in memory.out


def test_an_option_of_the_url_is_no_word_of_the_server(tmp_path: Path) -> None:
    done = InProcess(tmp_path, "postgresql://someone@127.0.0.1:1/jobs?sslpassword=hunter2")("doctor", "--quiet")
    assert done.code == 3
    assert "hunter2" not in done.out + done.err
    assert "Check that the server runs" in done.out


def test_a_file_is_named_and_is_no_server(tmp_path: Path) -> None:
    done = InProcess(tmp_path, f"sqlite:///{tmp_path}")("doctor", "--quiet")
    assert done.code == 3
    assert f"The database file {tmp_path} failed: unable to open" in done.out
    assert "port" not in done.out
    assert "Name a file" in done.out


def test_the_page_lists_every_check() -> None:
    listed = re.findall(r"^\| `([a-z ]+)` \|", PAGE.read_text().partition("## The checks")[2], re.MULTILINE)
    assert listed == [check.name for check in CHECKS]
