"""The environment of a command: a short allow-list, what the task adds, and what names the job."""

from __future__ import annotations

import os
from collections.abc import Mapping

# The worker's own environment holds database passwords and cloud credentials; a program gets what makes programs work.
_BASICS = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TERM")
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
_LIBRARIES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
ALLOWED = frozenset((*_BASICS, *_CERTIFICATES, *_LIBRARIES))
ALLOWED_PREFIXES = ("LC_",)
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


def environment(task_env: Mapping[str, str], job: Mapping[str, str]) -> dict[str, str]:
    """`job` comes last: a task cannot pretend to be another job."""
    inherited = {name: value for name, value in os.environ.items() if is_allowed(name)}
    return {"PATH": DEFAULT_PATH, **inherited, **task_env, **job}


def is_allowed(name: str) -> bool:
    return name in ALLOWED or name.startswith(ALLOWED_PREFIXES)
