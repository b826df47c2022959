"""Configuration: read once, frozen, every problem reported together.

A value comes from the first of these that names it: flags, the environment, `[tool.holdfast]` in the nearest
pyproject.toml (the working directory's, or that of the closest folder above it), the default. An environment variable
that is set but empty counts as not set.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.domain import durations
from holdfast.domain.errors import ConfigurationError, InvalidInput
from holdfast.domain.job import DEFAULT_LEASE_SECONDS
from holdfast.domain.names import check_integer, check_name

DATABASE_FILE = "holdfast.db"
ARTIFACTS_FOLDER = "holdfast-artifacts"
SECRET = "***"

_STORES = ("postgres", "postgresql", "postgresql+psycopg", "sqlite", "sqlite+pysqlite")
_REDIS = ("redis", "rediss", "unix")
CONTROL_PLANES = ("https://", "http://")  # how the URL of one begins
_STORE_RULE = (
    "must be postgresql://user@host/database, sqlite:///path/to/file.db or the https:// URL of a control plane"
)
# As the database library reads it: a password may contain anything but an @.
_PORT = re.compile(r"[^:]+://(?>[^:/]*(?::[^@]*)?@|)(?:\[[^/?]+\]|[^/:?]+)?:([^/?]*)")
# What follows the first colon after a host of Postgres: its port, and perhaps more hosts with theirs.
_PORTS = re.compile(r"\d*(?:,(?:\[[^\]]*\]|[^:,]*)(?::\d*)?)*", re.ASCII)
# Also in the middle of a name (secret_key, X-Amz-Signature): rather one too many than one too few.
_SECRET_OPTION = r"([?&;#][\w.-]*(?:pass|pwd|token|secret|credential|signature|key|sig|auth|connection_string)[\w.-]*=)"
_RQ_SERIALIZERS = ("pickle", "json")
METRICS = ("auto", "open", "token", "off")
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    # URLs carry passwords: a settings object that lands in a log must not.
    database_url: str = field(repr=False)
    redis_url: str | None = field(default=None, repr=False)
    listen_url: str | None = field(default=None, repr=False)  # where the store's own URL leads through a pooler
    app: str | None = None
    worker_id: str | None = None
    lease_seconds: float = DEFAULT_LEASE_SECONDS
    poll_interval: float = 2.0
    cache_ttl_seconds: float = 3600.0
    cache_enabled: bool = True
    cache_url: str | None = field(default=None, repr=False)  # a SQLite file of its own; else the cache is in the store
    notify: bool = True
    heartbeat_seconds: float | None = None  # None: min(20 s, lease / 3)
    grace_seconds: float = 30.0
    upkeep_seconds: float = 300.0
    artifacts_url: str = field(default="", repr=False)  # filled in: a folder beside the project when nobody names one
    control_plane: str | None = None  # in place of the database, for workers and for `App()`
    token: str | None = field(default=None, repr=False)
    rq_url: str | None = field(default=None, repr=False)  # a Redis whose RQ queues are told of jobs
    rq_serializer: str = "pickle"  # as the rq workers there were started
    redis_prefix: str = "holdfast"  # of every key in Redis
    redis_window: int = 1_000  # messages that a stream holds at most
    redis_timeout_seconds: float = 0.25  # for an answer of Redis
    rate_per_second: float = 2_000.0  # requests that a control plane takes of one credential; 0 for any number
    metrics: str = "auto"  # who may read /metrics of a control plane


class WrongSettings(ConfigurationError):
    """Every problem that the settings have."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(_listed(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class _Setting:
    """One field: its names in the environment (its name in a file is the field's own) and its rule."""

    variables: tuple[str, ...]
    check: Callable[[Any, str], Any]


@dataclass(frozen=True, slots=True)
class _Given:
    """A value, and where it came from, for the message when it breaks a rule."""

    value: Any
    place: str


def read_settings(
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Settings:
    """The settings in force; one ConfigurationError that lists every problem there is."""
    environment = os.environ if environment is None else environment
    directory = Path.cwd() if directory is None else directory
    problems: list[str] = []
    project = nearest_project(directory)
    file = _read_file(project, problems)
    values: dict[str, Any] = {}
    for name, given in _all_given(flags or {}, environment, file, problems):
        values |= _checked(name, _SETTINGS[name], given, problems)
    if problems:
        raise WrongSettings(problems)
    values.setdefault("database_url", f"sqlite:///{(project or directory) / DATABASE_FILE}")
    artifacts = values.get("artifacts_url", str((project or directory) / ARTIFACTS_FOLDER))
    values["artifacts_url"] = artifacts_location(artifacts, "artifacts_url", directory)
    return Settings(**values)


def _all_given(
    flags: Mapping[str, Any], environment: Mapping[str, str], file: Mapping[str, _Given], problems: list[str]
) -> Iterator[tuple[str, _Given]]:
    for name, setting in _SETTINGS.items():
        sources = (_from_flags(flags, name), _from_environment(environment, setting, problems), file.get(name))
        given = next((source for source in sources if source is not None), None)
        if given is not None:
            yield name, given


def places(flags: Mapping[str, Any], environment: Mapping[str, str], directory: Path) -> dict[str, str]:
    """Where each value that is not a default was found."""
    file = _read_file(nearest_project(directory), [])
    return {name: given.place for name, given in _all_given(flags, environment, file, [])}


def variables() -> tuple[str, ...]:
    """Every environment variable that is a setting."""
    return tuple(variable for setting in _SETTINGS.values() for variable in setting.variables)


def neutral_environment() -> dict[str, str]:
    """Ours, without anything that would lead a process to the configured store, a collector or a proxy."""
    leading = set(variables())
    return {
        name: value
        for name, value in os.environ.items()
        if name not in leading and not name.startswith(("HOLDFAST_", "OTEL_")) and not name.lower().endswith("_proxy")
    }


def nearest_project(directory: Path) -> Path | None:
    """The closest folder, from here upwards, with a pyproject.toml."""
    folders = (directory, *directory.parents)
    return next((folder for folder in folders if (folder / "pyproject.toml").is_file()), None)


def mask_url(url: str) -> str:
    """The URL with its passwords replaced, whatever they are made of."""
    # Anywhere: the URL of one place may be the path of another (simplecache::ftp://…).
    url = re.sub(r"(://[^:/@]*):.*@", rf"\1:{SECRET}@", url, flags=re.DOTALL)
    return re.sub(rf"{_SECRET_OPTION}[^&]*", rf"\1{SECRET}", url, flags=re.IGNORECASE)


def mask_secrets(text: str) -> str:
    """A text with the password of every URL in it replaced; a URL ends at a space."""
    text = re.sub(r"(://[^\s/:@]*):\S*@", rf"\1:{SECRET}@", text)
    return re.sub(rf"{_SECRET_OPTION}[^\s&]*", rf"\1{SECRET}", text, flags=re.IGNORECASE)


def _from_flags(flags: Mapping[str, Any], name: str) -> _Given | None:
    value = flags.get(name)
    return None if value is None else _Given(value, "--" + name.removesuffix("_url").replace("_", "-"))


def _from_environment(environment: Mapping[str, str], setting: _Setting, problems: list[str]) -> _Given | None:
    found = [_Given(environment[name], name) for name in setting.variables if environment.get(name)]
    if len({given.value for given in found}) > 1:
        names = " and ".join(given.place for given in found)
        problems.append(f"{names}: are two names of one setting and differ; set just one of them")
    return found[0] if found else None


def _read_file(project: Path | None, problems: list[str]) -> dict[str, _Given]:
    if project is None:
        return {}
    path = project / "pyproject.toml"
    try:
        import tomllib  # a process without a file of settings never needs it

        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        problems.append(f"{path}: cannot be read ({error})")
        return {}
    table = content.get("tool", {}).get("holdfast", {})
    if not isinstance(table, dict):
        problems.append(f"{path}: [tool.holdfast] must be a table")
        return {}
    problems += _unknown_keys(table, path)
    return {
        name: _Given(_ANCHORED.get(name, _as_it_is)(value, project), f"{path}: {name}")
        for name, value in table.items()
        if name in _SETTINGS
    }


def _unknown_keys(table: dict[str, Any], path: Path) -> Iterator[str]:
    for name in sorted(set(table) - set(_SETTINGS)):
        yield f"{path}: {name}: unknown key in [tool.holdfast]; known are {', '.join(sorted(_SETTINGS))}"


def _anchored(url: Any, project: Path) -> Any:
    """A relative SQLite path in a file means a path beside that file, wherever the command is run."""
    found = re.fullmatch(r"(sqlite(?:\+pysqlite)?:///)([^/:?][^:?]*)(\?.*)?", url) if isinstance(url, str) else None
    return f"{found[1]}{project / found[2]}{found[3] or ''}" if found else url


def _anchored_folder(url: Any, project: Path) -> Any:
    return str(project / url) if isinstance(url, str) and url.strip() and not _is_url(url) else url


def _as_it_is(value: Any, _project: Path) -> Any:
    return value


def _anchored_cache(url: Any, project: Path) -> Any:
    return _anchored_folder(_anchored(url, project), project)


_ANCHORED = {"database_url": _anchored, "artifacts_url": _anchored_folder, "cache_url": _anchored_cache}


def artifacts_location(value: Any, place: str, directory: Path) -> str:
    """Where files of jobs go: a URL as it is, a folder as an absolute path, because a task may change its directory."""
    location = _artifacts_url(value, place)
    if _is_url(location):
        return location
    return str(directory / Path(location.removeprefix("file://").removeprefix("local://")).expanduser())


def _is_url(location: str) -> bool:
    return ("://" in location or "::" in location) and not location.startswith(("file://", "local://"))


def _checked(name: str, setting: _Setting, given: _Given, problems: list[str]) -> dict[str, Any]:
    try:
        return {name: setting.check(given.value, given.place)}
    except InvalidInput as problem:
        problems.append(mask_secrets(str(problem)))
        return {}


def _listed(problems: list[str]) -> str:
    if len(problems) == 1:
        return problems[0]
    return "\n".join([f"{len(problems)} settings are wrong:", *(f"  {problem}" for problem in problems)])


def _store_url(value: Any, place: str) -> str:
    return _url(value, place, (*_STORES, "https", "http"), _STORE_RULE)


def _control_plane(value: Any, place: str) -> str:
    url = _url(value, place, ("https", "http"), "must be https://host, the URL of a control plane")
    if "@" in url or "?" in url or "#" in url:
        raise InvalidInput(
            place, "must be https://host without a password: the token is given apart, as HOLDFAST_TOKEN"
        )
    return url.rstrip("/")


def _token(value: Any, place: str) -> str:
    # Not repeated when it is wrong: most of it may be right.
    if not isinstance(value, str) or not re.fullmatch(r"[\x21-\x7e]{1,500}", value.strip()):
        raise InvalidInput(place, "must be a token as `holdfast tokens create` prints it: one word of plain characters")
    return value.strip()


def _listen_url(value: Any, place: str) -> str:
    return _url(value, place, _STORES[:3], "must be postgresql://user@host/database, past any pooler")


def _redis_url(value: Any, place: str) -> str:
    return _url(value, place, _REDIS, "must be redis://host:port/number")


def redis_location(value: Any, place: str) -> str:
    """A Redis that a flag names, under the rule of the settings."""
    return _redis_url(value, place)


def _artifacts_url(value: Any, place: str) -> str:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    rule = "must be a folder or a URL that fsspec can open, such as s3://bucket/folder"
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(place, rule)
    if not value.isprintable() or (_is_url(value) and not re.match(r"(?:[\w+.-]+::)*[\w+.-]+://.", value)):
        raise InvalidInput(place, f"{rule}; this is neither")  # not repeated: it may contain a password
    return value


def _cache_url(value: Any, place: str) -> str:
    """The path of the file."""
    rule = "must be sqlite:///path/to/file.db, or the path of such a file"
    location = os.fspath(value) if isinstance(value, str | os.PathLike) else ""
    found = re.fullmatch(r"sqlite(?:\+pysqlite)?:///([^?]+)", location)
    path = found[1] if found else location
    if not path.strip() or not path.isprintable() or path == ":memory:" or (found is None and "://" in path):
        raise InvalidInput(place, rule)
    return path


def _url(value: Any, place: str, schemes: tuple[str, ...], rule: str) -> str:
    # What was given is not repeated: where it is not a URL, nobody can tell which part of it is the password.
    found = re.match(r"([\w+.-]+)://", value) if isinstance(value, str) else None
    if not isinstance(value, str) or found is None:
        raise InvalidInput(place, f"{rule}; this is not a URL")
    if found[1] not in schemes:
        raise InvalidInput(place, f"{rule}, got {found[1]}://")
    port = _PORT.match(value)
    several = found[1].startswith("postgres") and port and _PORTS.fullmatch(port[1])
    if port and port[1] and not port[1].isdecimal() and not several:
        raise InvalidInput(place, f"{rule}; its port is not a number")
    return value


def _duration(value: Any, place: str) -> float:
    result = durations.seconds(value, place)
    if result <= 0:
        raise InvalidInput(place, f"must be more than zero, got {value!r}")
    return result


def _switch(value: Any, place: str) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word not in _TRUE + _FALSE:
        raise InvalidInput(place, f"must be true or false, got {value!r}")
    return word in _TRUE


def _rate(value: Any, place: str) -> float:
    try:
        rate = float(value)
    except (TypeError, ValueError):
        rate = -1.0
    if isinstance(value, bool) or not 0 <= rate <= 1e9:
        raise InvalidInput(place, f"must be a number of requests per second, or 0 for no limit, got {value!r}")
    return rate


def _window(value: Any, place: str) -> int:
    try:
        return check_integer(int(value) if isinstance(value, str) else value, place, 1, 10_000)
    except ValueError:
        raise InvalidInput(place, f"must be a whole number between 1 and 10,000, got {value!r}") from None


def _rq_serializer(value: Any, place: str) -> str:
    if value not in _RQ_SERIALIZERS:
        raise InvalidInput(place, f"must be one of {', '.join(_RQ_SERIALIZERS)}, got {value!r}")
    return str(value)


def _metrics(value: Any, place: str) -> str:
    if value not in METRICS:
        raise InvalidInput(place, f"must be one of {', '.join(METRICS)}, got {value!r}")
    return str(value)


_SETTINGS = {
    "database_url": _Setting(("DATABASE_URL",), _store_url),
    "redis_url": _Setting(("REDIS_URL",), _redis_url),
    "listen_url": _Setting(("HOLDFAST_LISTEN_URL",), _listen_url),
    "app": _Setting(("HOLDFAST_APP",), check_name),
    "worker_id": _Setting(("WORKER_ID",), check_name),
    "lease_seconds": _Setting(("LEASE_SECONDS", "JOB_LOCK_TIMEOUT_SECONDS"), _duration),
    "poll_interval": _Setting(("POLL_INTERVAL",), _duration),
    "cache_ttl_seconds": _Setting(("CACHE_TTL_SECONDS",), _duration),
    "cache_enabled": _Setting(("CACHE_ENABLED",), _switch),
    "cache_url": _Setting(("CACHE_URL",), _cache_url),
    "notify": _Setting(("HOLDFAST_NOTIFY",), _switch),
    "heartbeat_seconds": _Setting(("HOLDFAST_HEARTBEAT_SECONDS",), _duration),
    "grace_seconds": _Setting(("HOLDFAST_GRACE_SECONDS",), _duration),
    "upkeep_seconds": _Setting(("HOLDFAST_UPKEEP_SECONDS",), _duration),
    "artifacts_url": _Setting(("HOLDFAST_ARTIFACTS",), _artifacts_url),
    "control_plane": _Setting(("HOLDFAST_CONTROL_PLANE",), _control_plane),
    "token": _Setting(("HOLDFAST_TOKEN",), _token),
    "redis_prefix": _Setting(("HOLDFAST_REDIS_PREFIX",), check_name),
    "redis_window": _Setting(("HOLDFAST_REDIS_WINDOW",), _window),
    "redis_timeout_seconds": _Setting(("HOLDFAST_REDIS_TIMEOUT",), _duration),
    "rq_url": _Setting(("HOLDFAST_RQ_URL",), _redis_url),
    "rate_per_second": _Setting(("HOLDFAST_RATE_PER_SECOND",), _rate),
    "metrics": _Setting(("HOLDFAST_METRICS",), _metrics),
    "rq_serializer": _Setting(("HOLDFAST_RQ_SERIALIZER",), _rq_serializer),
}
