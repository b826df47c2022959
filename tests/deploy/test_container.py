"""The image and the compose file: what the linters say, and the promises that no linter knows."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.servers.waiting import DEADLINE_SECONDS

ROOT = Path(__file__).resolve().parents[2]
TOOLS = Path(sys.executable).parent


def run(*command: str | Path) -> str:
    """What a linter has to say; nothing when it is content."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    content: dict[str, Any] = YAML(typ="safe").load(ROOT / "compose.yaml")
    return content


def instructions() -> list[str]:
    return [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.startswith("#")]


def test_hadolint_finds_nothing() -> None:
    assert run(TOOLS / "hadolint", "--no-color", "Dockerfile") == ""


def test_the_compose_file_follows_its_schema() -> None:
    assert run(TOOLS / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", "compose.yaml") == ""


def test_the_worker_is_pid_1_of_the_image_and_not_root() -> None:
    final = instructions()[max(number for number, line in enumerate(instructions()) if line.startswith("FROM")) :]
    assert 'ENTRYPOINT ["holdfast"]' in final
    assert "STOPSIGNAL SIGTERM" in final
    assert "USER 10001:10001" in final


def test_the_image_is_built_with_the_uv_of_the_pins() -> None:
    [pinned] = re.findall(r"^uv==(\S+)", (ROOT / "requirements/dev.txt").read_text(), re.MULTILINE)
    assert f"FROM ghcr.io/astral-sh/uv:{pinned} AS uv" in instructions()


def test_everything_the_image_copies_is_sent_to_the_builder() -> None:
    sources = [line.split()[1:-1] for line in instructions() if line.startswith("COPY") and "--from" not in line]
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {source for names in sources for source in names} == allowed


def test_a_container_is_given_longer_than_the_grace_time(compose: dict[str, Any]) -> None:
    worker = compose["services"]["worker"]
    assert "--grace=30s" in worker["command"]
    assert worker["stop_grace_period"] == "45s"


def test_nothing_uses_the_database_before_it_is_migrated(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for name in ("worker", "control-plane"):
        assert services[name]["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
    assert services["migrate"]["command"] == ["db", "upgrade"]
    assert services["migrate"]["depends_on"]["postgres"]["condition"] == "service_healthy"


def test_there_is_no_password_in_the_compose_file(compose: dict[str, Any]) -> None:
    assert compose["services"]["worker"]["environment"]["PGPASSWORD"].startswith("${POSTGRES_PASSWORD:?")
    assert not re.search(r"://[^\s/:@]+:[^\s@]+@", (ROOT / "compose.yaml").read_text())


def test_what_is_published_is_published_to_this_machine_only(compose: dict[str, Any]) -> None:
    ports = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)
