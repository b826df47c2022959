"""Artifacts wherever fsspec can write: one object a file.

An object store shows an object whole or not at all. Where the protocol is a file system's (SFTP, SMB, HDFS …), the file
is written under another name and then moved, which is as atomic as that system's own move.

fsspec has habits that must not matter here: several of its calls read `*?[]` in a path as a pattern (so a base that
contains one is refused, as names are), it may answer listings from a cache (which is dropped before each of ours), and
it hands one instance to everybody in the process.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, BinaryIO

from holdfast.domain.artifacts import TEMPORARY, parse_reference
from holdfast.domain.errors import ArtifactMissing, ArtifactUnavailable, ConfigurationError, HoldfastError
from holdfast.ports import StoredFile
from holdfast.settings import mask_secrets, mask_url

OBJECT_STORES = frozenset(
    ["abfs", "abfss", "adl", "az", "gcs", "gs", "memory", "oci", "oss", "r2", "s3", "s3a", "tos", "tosfs"]
)
_PACKAGES = {
    "abfs": "adlfs",
    "abfss": "adlfs",
    "az": "adlfs",
    "gcs": "gcsfs",
    "gs": "gcsfs",
    "s3": "s3fs",
    "s3a": "s3fs",
}
# In the order in which implementations have them: S3 and Azure, GCS, SFTP and SMB, memory.
_TIMES = ("LastModified", "last_modified", "updated", "mtime", "modified", "created")


class BucketArtifacts:
    def __init__(self, url: str) -> None:
        self.place = mask_url(url)  # as it may be shown
        self._filesystem, self._root = _opened(url, self.place)
        protocol = self._filesystem.protocol
        protocols = {protocol} if isinstance(protocol, str) else set(protocol)
        self._puts_are_atomic = bool(protocols & OBJECT_STORES)

    def write(self, reference: str, data: bytes) -> None:
        parse_reference(reference)
        with self._explained(f"{reference} cannot be saved"):
            self._put(f"{self._root}/{reference}", data)

    def read(self, reference: str) -> bytes:
        parse_reference(reference)
        with self._explained(f"{reference} cannot be read"):
            return bytes(self._filesystem.cat_file(f"{self._root}/{reference}"))

    def open(self, reference: str) -> BinaryIO:
        parse_reference(reference)
        with self._explained(f"{reference} cannot be read"):
            file: BinaryIO = self._filesystem.open(f"{self._root}/{reference}", "rb")
            return file

    def delete(self, stored: str) -> None:
        with self._explained(f"{stored} cannot be deleted"), contextlib.suppress(FileNotFoundError):
            self._filesystem.rm_file(f"{self._root}/{stored}")

    def job_folders(self) -> Iterator[str]:
        """fsspec knows no listing page by page: it has them all in memory at once."""
        with self._explained("the folder cannot be listed"):
            for entry in self._list(self._root):
                if entry["type"] == "directory":
                    yield entry["name"].rstrip("/").rpartition("/")[2]

    def files(self, job_id: str) -> Iterator[StoredFile]:
        with self._explained(f"the folder of job {job_id} cannot be listed"):
            yield from self._files(f"{self._root}/{job_id}", job_id)

    def remove_empty(self, job_id: str) -> None:
        """A folder in a bucket is there as long as something is in it; elsewhere an empty one harms nobody."""

    def now(self) -> float:
        with self._explained("it cannot be written to"), self._probe() as path:
            modified = self._modified(path, {})
        if modified is None:
            raise ConfigurationError(f"{self.place}: fsspec tells no times of files there; nothing can be collected")
        return modified

    def check(self) -> None:
        with self._explained("a file cannot be written, read and deleted"), self._probe() as path:
            content = self._filesystem.cat_file(path)
        if content != b"holdfast":
            raise ArtifactUnavailable(f"{self.place}: what was written did not come back")

    @contextlib.contextmanager
    def _probe(self) -> Iterator[str]:
        path = f"{self._root}/{TEMPORARY}{secrets.token_hex(8)}"
        if not self._puts_are_atomic:
            self._filesystem.makedirs(self._root, exist_ok=True)
        self._filesystem.pipe_file(path, b"holdfast")
        try:
            self._filesystem.invalidate_cache()
            yield path
        finally:
            self._filesystem.rm_file(path)

    def _put(self, path: str, data: bytes) -> None:
        if self._puts_are_atomic:
            self._filesystem.pipe_file(path, data)
            return
        folder = path.rpartition("/")[0]
        temporary = f"{folder}/{TEMPORARY}{secrets.token_hex(8)}"
        self._filesystem.makedirs(folder, exist_ok=True)
        try:
            self._filesystem.pipe_file(temporary, data)
            self._filesystem.mv(temporary, path)
        except BaseException:
            with contextlib.suppress(Exception):
                self._filesystem.rm_file(temporary)
            raise

    def _list(self, path: str) -> list[dict[str, Any]]:
        self._filesystem.invalidate_cache()
        try:
            found: list[dict[str, Any]] = self._filesystem.ls(path, detail=True)
        except FileNotFoundError:
            return []
        # Some list the folder's own marker among what is in it.
        return [entry for entry in found if entry["name"].rstrip("/").lstrip("/") != path.strip("/")]

    def _files(self, path: str, stored: str) -> Iterator[StoredFile]:
        for entry in self._list(path):
            name = entry["name"].rstrip("/").rpartition("/")[2]
            if entry["type"] == "directory":
                yield from self._files(f"{path}/{name}", f"{stored}/{name}")
            elif (modified := self._modified(entry["name"], entry)) is not None:
                yield StoredFile(f"{stored}/{name}", modified)

    def _modified(self, path: str, known: dict[str, Any]) -> float | None:
        entry = known or self._filesystem.info(path)
        moment = next((entry[name] for name in _TIMES if entry.get(name) is not None), None)
        if moment is None:
            with contextlib.suppress(NotImplementedError):
                moment = self._filesystem.modified(path)
        return _seconds(moment)

    @contextlib.contextmanager
    def _explained(self, problem: str) -> Iterator[None]:
        try:
            yield
        except HoldfastError:
            raise
        except FileNotFoundError as error:
            raise ArtifactMissing(f"{problem}: there is no such file in {self.place}") from _showable(error)
        except Exception as error:  # every implementation has its own: botocore's, google's, paramiko's
            said = mask_secrets(str(error).partition("\n")[0]) or type(error).__name__
            raise ArtifactUnavailable(f"{problem} in {self.place}: {said}") from _showable(error)


def _showable(error: BaseException | None) -> BaseException | None:
    """As the cause of another, for its stack is stored with the job; not with a password in one of its messages."""
    seen, each = [], error
    while each is not None and each not in seen:
        if mask_secrets(str(each)) != str(each):
            return None
        seen.append(each)
        each = each.__cause__ or each.__context__
    return error


def _seconds(moment: Any) -> float | None:
    match moment:
        case datetime():
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        case str():
            with contextlib.suppress(ValueError):
                return _seconds(datetime.fromisoformat(moment))
        case int() | float():
            return float(moment)
    return None


def check_protocols(url: str) -> None:
    """ConfigurationError for what no waiting will mend: a protocol that nobody knows, a package that is not there."""
    from fsspec import get_filesystem_class

    for protocol in protocols(url):
        try:
            get_filesystem_class(protocol)
        except ImportError as error:
            package = _PACKAGES.get(protocol)
            install = f"pip install {package}" if package else mask_secrets(str(error))
            raise ConfigurationError(
                f"artifacts at {mask_url(url)}: {protocol}:// needs a package: {install}"
            ) from _showable(error)
        except ValueError as error:
            raise ConfigurationError(
                f"artifacts at {mask_url(url)}: {protocol}:// is no protocol that fsspec knows;"
                " name a folder, or a URL such as s3://bucket/folder"
            ) from _showable(error)


def protocols(url: str) -> list[str]:
    """Of every place in a chain: simplecache::s3://bucket has two."""
    return [part.partition("://")[0] for part in url.split("::")]


def _opened(url: str, place: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    check_protocols(url)
    try:
        filesystem, root = url_to_fs(url)
    except Exception as error:  # what an implementation thinks of the URL
        said = mask_secrets(str(error)) or type(error).__name__
        raise ConfigurationError(f"artifacts at {place} cannot be opened: {said}") from _showable(error)
    root = root.rstrip("/")
    if any(character in root for character in "*?[]"):
        raise ConfigurationError(f"artifacts at {place}: the path must not contain any of *?[]")
    return filesystem, root
