"""Forms of a Postgres URL: ours, SQLAlchemy's and libpq's.

libpq takes several hosts in one URL (`postgresql://a:1,b:2/db`), or the folder of a socket (`postgresql://%2Frun/db`).
SQLAlchemy takes both as parameters of the query. The form with parameters (`postgresql:///db?host=a,b&port=1,2`) is
understood by both, so it is the one used inside.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from sqlalchemy import URL, make_url

_DEFAULT_PORT = "5432"
# Commas in the name of the user and in the password separate nothing: what follows the hosts has no "@" in its path.
_LIBPQ_HOSTS = re.compile(
    r"(?P<scheme>postgres(?:ql)?(?:\+\w+)?://)(?:(?P<user>[^/?#]*)@)?(?P<hosts>[^/?#@]*(?:,|%2[Ff])[^/?#@]*)"
    r"(?P<rest>(?:/[^?#@]*)?(?:[?#].*)?)",
    re.DOTALL,
)
# A session must accept writes: behind one address, or among several hosts, the server may be a standby.
SESSION_KIND = "target_session_attrs"


def parse_url(url: str | URL) -> URL:
    """As `make_url`, also with several hosts or the folder of a socket."""
    found = _LIBPQ_HOSTS.fullmatch(url) if isinstance(url, str) else None
    if found is None:
        return make_url(url)
    user = f"{found['user']}@" if found["user"] is not None else ""
    hosts, ports = zip(*map(_host_and_port, found["hosts"].split(",")), strict=True)
    one = make_url(f"{found['scheme']}{user}{'' if found['rest'][:1] == '/' else '/'}{found['rest']}")
    return one.set(query={"host": ",".join(hosts), "port": ",".join(ports), **one.query})  # the query's are stronger


def postgres_url(url: str | URL) -> URL:
    """The URL with psycopg as its driver: `postgres://` and `postgresql://` mean the same to us."""
    parsed = parse_url(url)
    if parsed.drivername in ("postgres", "postgresql"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    return parsed


def libpq_url(url: str | URL, session: str = "read-write") -> str:
    """The URL as libpq reads it, for a connection outside the pool. `session` is the kind unless the URL names one."""
    plain = postgres_url(url).set(drivername="postgresql").difference_update_query(["prepare_threshold"])
    if SESSION_KIND not in plain.query:
        plain = plain.update_query_dict({SESSION_KIND: session})
    # SQLAlchemy leaves a space as it is, and writes "+" for one in the query, which libpq reads as a plus.
    before, mark, query = plain.render_as_string(hide_password=False).partition("?")
    return before.replace(" ", "%20") + mark + query.replace("+", "%20")


def _host_and_port(text: str) -> tuple[str, str]:
    host, separator, port = text.rpartition(":")
    if not separator or "]" in port:  # no port; the colons are those of an IPv6 address
        host, port = text, ""
    if port and not port.isdecimal():
        raise ValueError(f"the port of host {host!r} must be a number, got {port!r}")
    return unquote(host.strip("[]")), port or _DEFAULT_PORT
