"""The systemd units: valid, and with the settings that a drain, a crash and the kernel's memory killer need."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.servers.waiting import DEADLINE_SECONDS

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
UNITS = ["holdfast-worker.service", "holdfast-worker@.service"]
PROGRAM = "/opt/holdfast/bin/holdfast"


def settings(name: str) -> list[str]:
    """The lines that say something; a unit may name a key twice, so that it is no INI file."""
    lines = (DEPLOY / name).read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_the_unit(name: str, tmp_path: Path) -> None:
    # As an instance, where it is a template; and with a program that is there, because that is checked too.
    unit = tmp_path / name.replace("@", "@mail")
    unit.write_text((DEPLOY / name).read_text().replace(PROGRAM, shutil.which("true") or "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, timeout=DEADLINE_SECONDS
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize(
    "setting",
    [
        "Type=notify",
        "KillMode=mixed",
        "Restart=on-failure",
        "RestartPreventExitStatus=2",
        "TimeoutStartSec=infinity",
        "TimeoutStopSec=45",
        "WatchdogSec=60",
        "OOMPolicy=continue",
        "NoNewPrivileges=yes",
        "User=holdfast",
        "EnvironmentFile=/etc/holdfast/worker.env",
    ],
)
def test_the_unit_says_what_a_worker_needs(name: str, setting: str) -> None:
    assert setting in settings(name)


@pytest.mark.parametrize("name", UNITS)
def test_systemd_waits_longer_than_the_worker_does(name: str) -> None:
    [start] = [line for line in settings(name) if line.startswith("ExecStart=")]
    assert start.startswith(f"ExecStart={PROGRAM} worker --grace=30s ")


def test_the_template_differs_only_in_its_instance() -> None:
    one, several = (settings(name) for name in UNITS)
    assert [line for line in several if "%i" not in line] == [
        line for line in one if line != "Description=Holdfast worker"
    ]
