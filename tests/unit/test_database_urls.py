"""Which URLs open a database, and what is said of the others."""

from __future__ import annotations

import pytest

from holdfast.domain.errors import ConfigurationError
from holdfast.wiring.sql import open_database


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080", "https://jobs.example/"])
def test_url_of_a_control_plane_is_refused_where_the_database_itself_is_needed(url: str) -> None:
    with pytest.raises(ConfigurationError, match="done on the database itself, and the URL is a control plane's"):
        open_database(url)


def test_url_of_another_database_is_refused_by_its_name() -> None:
    with pytest.raises(ConfigurationError, match=r"^mysql is not a store Holdfast runs on: use postgresql://"):
        open_database("mysql://user@host/db")
