"""Forms of a Postgres URL."""

import pytest
from psycopg.conninfo import conninfo_to_dict

from holdfast.domain.errors import ConfigurationError
from holdfast.stores.postgres_url import libpq_url, postgres_url
from holdfast.wiring.sql import open_database

HOSTS = {
    "postgresql://a:1,b:2/db": ("a,b", "1,2"),
    "postgres://user:p%40ss@a,b:2/db": ("a,b", "5432,2"),
    "postgresql+psycopg://a,b/db?connect_timeout=3": ("a,b", "5432,5432"),
    "postgresql://[::1]:1,[fe80::2]/db": ("::1,fe80::2", "1,5432"),
    "postgresql:///db?host=a,b&port=1,2": ("a,b", "1,2"),
    "postgresql://a,b/db?port=1,2": ("a,b", "1,2"),
    "postgresql://user:p%40ss@%2Fvar%2Frun:1/db": ("/var/run", "1"),
    "postgresql://%2Fvar%2Frun:1,b/db": ("/var/run,b", "1,5432"),
}


@pytest.mark.parametrize("url", HOSTS)
def test_url_of_several_hosts_is_read_as_libpq_reads_it(url: str) -> None:
    found = conninfo_to_dict(libpq_url(url))
    assert (found["host"], found["port"]) == HOSTS[url]
    assert found["dbname"] == "db"
    assert found["target_session_attrs"] == "read-write"
    assert found.get("password") == ("p@ss" if "p%40ss" in url else None)
    open_database(url).close()


def test_session_kind_of_the_user_is_kept() -> None:
    url = "postgresql://a,b/db?target_session_attrs=any"
    assert conninfo_to_dict(libpq_url(url))["target_session_attrs"] == "any"
    assert postgres_url(url).query["target_session_attrs"] == "any"


def test_special_characters_of_a_password_reach_libpq() -> None:
    password = "a space @:/?#[]%+&,é"
    url = postgres_url("postgresql://user@host/db").set(password=password)
    assert conninfo_to_dict(libpq_url(url))["password"] == password


@pytest.mark.parametrize(
    "url", ["postgresql://u,v:5,w@host:1/db", "postgresql://u,v:5,w@a:1,b:2/db?application_name=@"]
)
def test_commas_before_the_hosts_separate_nothing(url: str) -> None:
    for found in (postgres_url(url), postgres_url(postgres_url(url))):
        assert (found.username, found.password, found.database) == ("u,v", "5,w", "db")
    assert conninfo_to_dict(libpq_url(url))["password"] == "5,w"


def test_spaces_and_pluses_of_an_option_reach_libpq() -> None:
    url = "postgresql://u:a+b@host/db?options=-c%20search_path%3Djobs&application_name=a%2Bb"
    found = conninfo_to_dict(libpq_url(url))
    assert found["options"] == "-c search_path=jobs"
    assert found["application_name"] == postgres_url(url).query["application_name"] == "a+b"
    assert found["password"] == "a+b"


def test_port_that_is_no_number_is_explained() -> None:
    with pytest.raises(ConfigurationError, match="port of host 'a' must be a number, got 'one'"):
        open_database("postgresql://a:one,b:2/db")
