from pathlib import Path

import psutil
import pytest

from scripts import stressed_suite


def test_busy_processes_end_with_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    before = psutil.Process().children()
    seen: list[psutil.Process] = []

    def suite(_options: object) -> int:
        seen.extend(child for child in psutil.Process().children() if child not in before)
        return 1

    monkeypatch.setattr(stressed_suite, "_suite", suite)
    assert stressed_suite.main(["busy", "--processes", "3"]) == 1
    assert len(seen) == 3
    assert not any(process.is_running() for process in seen)


def test_machine_without_cgroups_is_named_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stressed_suite, "CGROUPS", tmp_path / "none")
    assert stressed_suite.main(["quota", "--workers", "4"]) == 2
    assert "systemd-run --user --scope -p CPUQuota=100% make test" in capsys.readouterr().err
