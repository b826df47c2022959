"""A control plane in place of a database: nothing here loads a database library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.remote.opening import open_remote
from holdfast.remote.refusals import AccessRefused
from holdfast.stores.ids import new_ids

if TYPE_CHECKING:
    from holdfast.remote.store import RemoteStore

__all__ = ["AccessRefused", "open_control_plane"]


def open_control_plane(
    url: str,
    token: str | None,
    *,
    timeout_seconds: float | None = None,
    connections: int | None = None,
    for_worker: bool = False,
) -> RemoteStore:
    return open_remote(
        url, token, new_ids, timeout_seconds=timeout_seconds, connections=connections, for_worker=for_worker
    )
