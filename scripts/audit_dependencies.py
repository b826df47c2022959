"""What can be said of our dependencies without asking anybody: `python -m scripts.audit_dependencies`.

Every pin is one version with hashes and says nothing of where it came from; what the project asks for is pinned; what
is installed is what is pinned, and nothing else; it fits together; and the licence of what users install is one that
we know. Exit code 1 with a line for each thing that is not so. Known vulnerabilities are in a database that is asked
over the network: docs/security.md has the command.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PINS = ROOT / "requirements" / "dev.txt"
OURS = frozenset({"holdfast"})
BROUGHT_BY_VENV = frozenset({"pip", "setuptools"})
# Not installed for development: who wants them installs them.
UNPINNED = frozenset({"gcsfs", "s3fs"})
# In words that a licence's text or classifier begins or ends with.
KNOWN_LICENCES = re.compile(
    r"MIT|BSD|Apache|PSF|Python Software Foundation|MPL|Mozilla Public|ISC|LGPL|Lesser General|CC0"
)

_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)")
_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}\b")


def pins(text: str) -> dict[str, tuple[str, int]]:
    """By canonical name: the version, and how many hashes it has."""
    found: dict[str, tuple[str, int]] = {}
    for entry in _entries(text):
        match = _PIN.match(entry)
        name, version = (match[1], match[2]) if match else (re.split(r"[^A-Za-z0-9._-]", entry)[0], "")
        found[canonicalize_name(name)] = version, len(_HASH.findall(entry))
    return found


def _entries(text: str) -> Iterator[str]:
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    yield from re.split(r"\n(?!\s)", "\n".join(lines))


def wanted(project: str) -> set[str]:
    """Everything that pyproject.toml names."""
    read = tomllib.loads(project)
    named = [*read["project"]["dependencies"], *read["dependency-groups"]["dev"], *read["build-system"]["requires"]]
    named += [one for extra in read["project"]["optional-dependencies"].values() for one in extra]
    return {canonicalize_name(Requirement(one).name) for one in named}


def runtime() -> set[str]:
    """What a user gets with `pip install holdfast`, on this machine."""
    found: set[str] = set()
    waiting = [Requirement("holdfast")]
    while waiting:
        asked = waiting.pop()
        for requirement in map(Requirement, distribution(asked.name).requires or []):
            name = canonicalize_name(requirement.name)
            if name not in found and _applies(requirement, asked.extras):
                found.add(name)
                waiting.append(requirement)
    return found


def _applies(requirement: Requirement, extras: set[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))


def licence(found: Distribution) -> str:
    said: dict[str, Any] = dict(found.metadata.json)
    listed = [text.rpartition(" :: ")[2] for text in said.get("classifier", []) if text.startswith("License")]
    return str(said.get("license_expression") or "; ".join(listed) or said.get("license", "")).partition("\n")[0]


def problems(pinned: str, project: str) -> Iterator[str]:
    found = pins(pinned)
    if "://" in pinned or "--index-url" in pinned or "--find-links" in pinned:
        yield "the pins say where packages came from"
    for name, (version, hashes) in found.items():
        if not version or not hashes:
            yield f"{name} is not pinned to one version with its hashes"
    for name in sorted(wanted(project) - found.keys() - UNPINNED):
        yield f"pyproject.toml asks for {name}, which is not pinned"
    installed: dict[str, Distribution] = {canonicalize_name(one.name): one for one in distributions()}
    for name in sorted(installed.keys() - found.keys() - OURS - BROUGHT_BY_VENV):
        yield f"{name} is installed and not pinned"
    for name in sorted(installed.keys() & found.keys()):
        if installed[name].version != found[name][0]:
            yield f"{name} {installed[name].version} is installed, and {found[name][0]} is pinned"
    for name in sorted(runtime() & installed.keys()):
        if not KNOWN_LICENCES.search(licence(installed[name])):
            yield f"{name} has a licence that nobody has looked at: {licence(installed[name])!r}"


def main() -> int:
    said = list(problems(PINS.read_text(encoding="utf-8"), (ROOT / "pyproject.toml").read_text(encoding="utf-8")))
    for name in sorted(runtime()):
        found = distribution(name)
        print(f"{name} {found.version}  {licence(found)}")
    checked = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    said += checked.stdout.splitlines() if checked.returncode else []
    for line in said:
        print(line, file=sys.stderr)
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
