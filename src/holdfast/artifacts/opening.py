"""From where artifacts are kept to the store that keeps them. Light: a runner imports it when a job saves something."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.artifacts.local import LocalArtifacts
from holdfast.domain.errors import ConfigurationError
from holdfast.settings import mask_url

if TYPE_CHECKING:
    from holdfast.ports import ArtifactStore


def artifacts_root(location: str, store_id: str) -> str:
    """The part that belongs to one database: two that share a place never see each other's files."""
    return f"{location.rstrip('/')}/{store_id}"


def open_artifacts(root: str) -> ArtifactStore:
    """A folder, or whatever fsspec makes of the URL. Opening creates nothing."""
    if (folder := _folder(root)) is not None:
        return LocalArtifacts(Path(folder))
    from holdfast.artifacts.bucket import BucketArtifacts

    return BucketArtifacts(root)


def check_for_worker(location: str) -> None:
    """ConfigurationError where files of a worker can never be kept. Nothing is opened: what is only away comes back."""
    if _folder(location) is not None:
        return
    from holdfast.artifacts.bucket import check_protocols, protocols

    if "memory" in protocols(location):
        raise ConfigurationError(
            f"artifacts at {mask_url(location)}: every process of a worker has a memory of its own, which is gone when"
            " it ends, and results with it; name a folder, or a URL such as s3://bucket/folder (HOLDFAST_ARTIFACTS,"
            " App(artifacts=…) or --artifacts)"
        )
    check_protocols(location)


def _folder(root: str) -> str | None:
    local = re.fullmatch(r"(?:(?:file|local)://)?(.*)", root, re.DOTALL)
    return local[1] if local is not None and "://" not in local[1] and "::" not in local[1] else None
