"""docs/deploy.md says what the code does."""

import re
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "deploy.md").read_text()


def test_the_deployment_waits_longer_than_the_grace_time_and_probes_the_right_pages() -> None:
    [snippet] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    pod: dict[str, Any] = YAML(typ="safe").load(snippet)["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert "--grace=30s" in container["args"]
    assert pod["terminationGracePeriodSeconds"] == 45
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
