"""A pytest plugin: what did not pass, one JSON object a line, in the file that the environment names."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

FILE = "HOLDFAST_MUTANT_WITNESS"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _tell(report.nodeid, report.when, report.longreprtext)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _tell(report.nodeid, "collect", report.longreprtext)


def _tell(test: str, when: str, text: str) -> None:
    with Path(os.environ[FILE]).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"test": test, "when": when, "text": text}) + "\n")
