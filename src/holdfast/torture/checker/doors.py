"""Through which door a worker came: the ids of a run's workers begin with the name of the crew's member."""

from __future__ import annotations

import re

CONTRACT = "contract"
NOBODY = "operator"  # what no worker did
ELSE = "other"
_NAME = re.compile(r"(?:worker-)?([a-z]+)-[0-9]+")


def door_of(worker: str | None) -> str:
    """worker-database-1-5f0c21aa: database; rq-1-…: rq; contract-1: contract."""
    if worker is None:
        return NOBODY
    name = _NAME.match(worker)
    return ELSE if name is None else name.group(1)
