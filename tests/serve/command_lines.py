"""The command line in this process, on either side of a control plane."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.command_line import Finished, InProcess
from tests.serve.grounds import Served


class OverHttp(InProcess):
    """It knows only the control plane, and a token."""

    def __init__(self, folder: Path, url: str, token: str) -> None:
        super().__init__(folder, url)
        self.token = token

    def __call__(self, *arguments: str, stdin: str | bytes = b"", **variables: str) -> Finished:
        return super().__call__(*arguments, stdin=stdin, HOLDFAST_TOKEN=self.token, **variables)


@pytest.fixture
def holdfast(tmp_path: Path, served_database: str) -> InProcess:
    """On the database itself."""
    return InProcess(tmp_path, served_database)


@pytest.fixture
def over_http(tmp_path: Path, served: Served) -> InProcess:
    return OverHttp(tmp_path, served.url, served.tokens["admin"])
