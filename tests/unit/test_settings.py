"""Settings come from flags, the environment, the nearest pyproject.toml and defaults, in that order, or not at all."""

from pathlib import Path

import pytest

from holdfast import ConfigurationError
from holdfast.settings import Settings, mask_secrets, mask_url, neutral_environment, read_settings


def write_project(folder: Path, *lines: str) -> None:
    (folder / "pyproject.toml").write_text("\n".join(["[tool.holdfast]", *lines]))


def problems(folder: Path, flags: dict[str, object] | None = None, **environment: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        read_settings(flags, environment, folder)
    return str(caught.value)


def test_with_no_configuration_there_are_defaults(tmp_path: Path) -> None:
    settings = read_settings({}, {}, tmp_path)

    assert settings == Settings(
        database_url=f"sqlite:///{tmp_path / 'holdfast.db'}", artifacts_url=str(tmp_path / "holdfast-artifacts")
    )
    assert (settings.lease_seconds, settings.poll_interval) == (60, 2)
    assert (settings.cache_ttl_seconds, settings.cache_enabled) == (3600, True)


def test_the_default_file_is_beside_the_nearest_pyproject(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    deep = inner / "deep"
    deep.mkdir(parents=True)
    write_project(tmp_path)
    assert read_settings({}, {}, deep).database_url == f"sqlite:///{tmp_path / 'holdfast.db'}"
    write_project(inner)
    assert read_settings({}, {}, deep).database_url == f"sqlite:///{inner / 'holdfast.db'}"


def test_a_flag_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    write_project(tmp_path, 'worker_id = "file"')
    assert read_settings({}, {}, tmp_path).worker_id == "file"
    assert read_settings({}, {"WORKER_ID": "environment"}, tmp_path).worker_id == "environment"
    assert read_settings({"worker_id": "flag"}, {"WORKER_ID": "environment"}, tmp_path).worker_id == "flag"


def test_a_flag_that_was_not_given_and_a_variable_that_is_empty_count_as_not_set(tmp_path: Path) -> None:
    write_project(tmp_path, 'redis_url = "redis://file"')

    settings = read_settings({"redis_url": None}, {"REDIS_URL": "", "LEASE_SECONDS": ""}, tmp_path)

    assert (settings.redis_url, settings.lease_seconds) == ("redis://file", 60)


def test_every_value_can_be_given_in_the_environment_or_in_the_file(tmp_path: Path) -> None:
    expected = Settings(
        database_url="postgresql://h/d",
        redis_url="redis://h:6379/0",
        listen_url="postgresql://h:5432/d",
        app="tasks:app",
        worker_id="rack-7",
        lease_seconds=90,
        poll_interval=0.5,
        cache_ttl_seconds=60,
        cache_enabled=False,
        notify=False,
        heartbeat_seconds=15,
        grace_seconds=45,
        upkeep_seconds=90,
        artifacts_url="s3://bucket/jobs",
    )
    environment = {
        "DATABASE_URL": "postgresql://h/d",
        "REDIS_URL": "redis://h:6379/0",
        "HOLDFAST_LISTEN_URL": "postgresql://h:5432/d",
        "HOLDFAST_APP": "tasks:app",
        "WORKER_ID": "rack-7",
        "LEASE_SECONDS": "90",
        "POLL_INTERVAL": "500ms",
        "CACHE_TTL_SECONDS": "1m",
        "CACHE_ENABLED": "No",
        "HOLDFAST_NOTIFY": "false",
        "HOLDFAST_HEARTBEAT_SECONDS": "15",
        "HOLDFAST_GRACE_SECONDS": "45s",
        "HOLDFAST_UPKEEP_SECONDS": "90",
        "HOLDFAST_ARTIFACTS": "s3://bucket/jobs",
    }
    assert read_settings({}, environment, tmp_path) == expected

    write_project(
        tmp_path,
        'database_url = "postgresql://h/d"',
        'redis_url = "redis://h:6379/0"',
        'listen_url = "postgresql://h:5432/d"',
        'app = "tasks:app"',
        'worker_id = "rack-7"',
        "lease_seconds = 90",
        "poll_interval = 0.5",
        'cache_ttl_seconds = "1m"',
        "cache_enabled = false",
        "notify = false",
        "heartbeat_seconds = 15",
        "grace_seconds = 45",
        "upkeep_seconds = '90s'",
        'artifacts_url = "s3://bucket/jobs"',
    )
    assert read_settings({}, {}, tmp_path) == expected


def test_a_folder_for_artifacts_is_absolute_wherever_it_was_named(tmp_path: Path) -> None:
    project, inner = tmp_path, tmp_path / "inner"
    inner.mkdir()
    write_project(project, 'artifacts_url = "files"')
    assert read_settings({}, {}, inner).artifacts_url == str(project / "files")
    assert read_settings({}, {"HOLDFAST_ARTIFACTS": "mine"}, inner).artifacts_url == str(inner / "mine")
    assert read_settings({}, {"HOLDFAST_ARTIFACTS": "file:///srv/jobs"}, inner).artifacts_url == "/srv/jobs"
    assert read_settings({}, {"HOLDFAST_ARTIFACTS": "~/jobs"}, inner).artifacts_url == str(Path.home() / "jobs")
    assert not (project / "files").exists()
    for wrong in (" ", "://x", "s3://", "a\nb"):
        said = problems(inner, HOLDFAST_ARTIFACTS=wrong)
        assert "HOLDFAST_ARTIFACTS: must be a folder or a URL" in said
    assert "secret" not in repr(read_settings({}, {"HOLDFAST_ARTIFACTS": "sftp://me:secret@host/x"}, inner))


def test_who_may_read_the_metrics_is_one_of_four_words(tmp_path: Path) -> None:
    for word in ("auto", "open", "token", "off"):
        assert read_settings({}, {"HOLDFAST_METRICS": word}, tmp_path).metrics == word
    assert "HOLDFAST_METRICS: must be one of auto, open, token, off, got 'on'" in problems(
        tmp_path, HOLDFAST_METRICS="on"
    )
    write_project(tmp_path, 'metrics = "token"')
    assert read_settings({}, {}, tmp_path).metrics == "token"


def test_the_cache_may_be_a_file(tmp_path: Path) -> None:
    assert read_settings({}, {}, tmp_path).cache_url is None
    for given in ("sqlite:////srv/cache.db", "/srv/cache.db"):
        assert read_settings({}, {"CACHE_URL": given}, tmp_path).cache_url == "/srv/cache.db"
    for wrong in ("redis://h", "sqlite://", "sqlite:///:memory:", ":memory:", " ", "a\nb"):
        assert "CACHE_URL: must be sqlite:///path/to/file.db, or the path" in problems(tmp_path, CACHE_URL=wrong)
    write_project(tmp_path, 'cache_url = "sqlite:///cache.db"')
    assert read_settings({}, {}, tmp_path).cache_url == str(tmp_path / "cache.db")


def test_the_lease_has_a_second_name_which_must_not_say_something_else(tmp_path: Path) -> None:
    assert read_settings({}, {"JOB_LOCK_TIMEOUT_SECONDS": "30"}, tmp_path).lease_seconds == 30
    assert read_settings({}, {"JOB_LOCK_TIMEOUT_SECONDS": "30", "LEASE_SECONDS": "30"}, tmp_path).lease_seconds == 30
    differing = problems(tmp_path, JOB_LOCK_TIMEOUT_SECONDS="30", LEASE_SECONDS="60")
    assert "LEASE_SECONDS and JOB_LOCK_TIMEOUT_SECONDS" in differing


def test_a_relative_path_in_a_file_is_relative_to_that_file(tmp_path: Path) -> None:
    deep = tmp_path / "deep"
    deep.mkdir()
    write_project(tmp_path, 'database_url = "sqlite:///data/jobs.db"')
    assert read_settings({}, {}, deep).database_url == f"sqlite:///{tmp_path / 'data' / 'jobs.db'}"
    write_project(tmp_path, 'database_url = "sqlite:////srv/jobs.db"')
    assert read_settings({}, {}, deep).database_url == "sqlite:////srv/jobs.db"


def test_all_problems_are_reported_together(tmp_path: Path) -> None:
    write_project(tmp_path, "colour = 1", "cache_enabled = 3", "poll_interval = false")

    said = problems(tmp_path, {"database_url": "mysql://h/d"}, LEASE_SECONDS="-1", REDIS_URL="http://h")

    assert said.startswith("6 settings are wrong:\n")
    for part in (
        "--database: must be postgresql://",
        "LEASE_SECONDS: must be a duration",
        "REDIS_URL: must be redis://",
        "pyproject.toml: colour: unknown key",
        "pyproject.toml: cache_enabled: must be true or false",
        "pyproject.toml: poll_interval: must be a duration",
    ):
        assert part in said


@pytest.mark.parametrize("text", ["[tool.holdfast", "\x00", '[tool]\nholdfast = "yes"'])
def test_a_file_that_cannot_be_read_is_a_problem(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)

    assert str(tmp_path / "pyproject.toml") in problems(tmp_path)


@pytest.mark.parametrize(
    "url",
    ["", "hunter2", "//u:hunter2@h/d", "mysql://u:hunter2@h/d", "postgresql+asyncpg://u:hunter2@h/d", "u:hunter2@h://"],
)
def test_a_url_that_is_refused_is_not_repeated(tmp_path: Path, url: str) -> None:
    said = problems(tmp_path, {"database_url": url})

    assert said.startswith("--database: must be postgresql://")
    assert "hunter2" not in said


def test_a_port_that_is_no_number_is_refused_and_a_password_may_be_anything(tmp_path: Path) -> None:
    assert "port" in problems(tmp_path, DATABASE_URL="postgresql://u:hunter2@h:54x/d")
    for url in ("postgresql://u:p/#[?w@h:5432/d", "postgresql://[::1]:5432/d", "postgresql:///d?host=/run"):
        assert read_settings({"database_url": url}, {}, tmp_path).database_url == url


def test_no_password_is_printed(tmp_path: Path) -> None:
    secret = {"DATABASE_URL": "postgresql://u:hunter2@h/d", "REDIS_URL": "redis://:hunter2@h"}
    settings = read_settings({}, secret, tmp_path)
    assert "hunter2" not in repr(settings)

    for url in (
        "postgresql://u:hunter2@h/d",
        "postgresql://u:hunter2 and/more?@of#it@h:5432/d",
        "redis://:hunter2@h",
        "postgresql://h/d?password=hunter2 and more&sslpassword=hunter2",
        "simplecache::ftp://u:hunter2@h/d",
        "zip://a.zip::simplecache::ftp://u:hunter2 and/more@h/d",
        "s3://b/x?secret_key=hunter2",
        "s3://b/x?a=1&key=hunter2",
        "az://c/x?sv=2024&sig=hunter2%2B",
        "https://h/x?X-Amz-Signature=hunter2",
    ):
        assert "hunter2" not in mask_secrets(f"no answer from {url}".replace(" and/more", "").replace(" and more", ""))
        assert "hunter2" not in mask_url(url)
        assert "more" not in mask_url(url)
    assert mask_url("postgresql://u:hunter2@h:5432/d") == "postgresql://u:***@h:5432/d"
    assert mask_url("simplecache::ftp://u:hunter2@h/d") == "simplecache::ftp://u:***@h/d"
    assert mask_url("s3://b/x?endpoint=h&secret_key=a&b=2") == "s3://b/x?endpoint=h&secret_key=***&b=2"
    assert mask_url("sqlite:////srv/jobs.db") == "sqlite:////srv/jobs.db"
    assert mask_secrets("no answer from redis://:a/b@h:1, then x://y?token=z") == (
        "no answer from redis://:***@h:1, then x://y?token=***"
    )
    assert str(tmp_path) in mask_url(f"sqlite:///{tmp_path}/jobs.db")


def test_a_neutral_environment_leads_to_no_store_collector_or_proxy_and_keeps_what_a_named_server_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leading = (
        "DATABASE_URL",
        "REDIS_URL",
        "HOLDFAST_ANYTHING",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "https_proxy",
        "NO_PROXY",
    )
    for name in leading:
        monkeypatch.setenv(name, "somewhere")
    monkeypatch.setenv("PGPASSWORD", "secret")
    neutral = neutral_environment()
    assert not neutral.keys() & set(leading)
    assert (neutral["PGPASSWORD"], "PATH" in neutral) == ("secret", True)
