"""A copy of the tree. Its `src` comes before the installed package in every process that a test starts.

Byte code is kept by time and size of a file, which a mutant planted within the same second may leave as they were: so
what was compiled of a file goes away with every change of it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import cache_from_source
from pathlib import Path
from tempfile import TemporaryDirectory

from scripts.mutants.mutant import REPOSITORY, Mutant

_LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "*.db", "*.db-*")
_FETCHED = ".cache"  # programs that the suite has fetched: read only


class Ground:
    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def environment(self) -> dict[str, str]:
        """Byte code is kept: each of a trial's processes would compile all modules of Holdfast anew."""
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {**kept, "PYTHONPATH": str(self.root / "src")}

    @contextmanager
    def planted(self, mutant: Mutant) -> Iterator[None]:
        file = self.root / mutant.path
        text = file.read_text(encoding="utf-8")
        self._write(file, mutant.planted(text))
        try:
            yield
        finally:
            self._write(file, text)

    def _write(self, file: Path, text: str) -> None:
        file.write_text(text, encoding="utf-8")
        with suppress(FileNotFoundError):
            Path(cache_from_source(str(file))).unlink()

    def package(self) -> Path:
        """Which Holdfast a process that is started here imports."""
        told = subprocess.run(
            [sys.executable, "-c", "import holdfast; print(holdfast.__file__)"],
            env=self.environment,
            cwd=self.root,
            check=True,
            capture_output=True,
            text=True,
        )
        return Path(told.stdout.strip()).parent


@contextmanager
def copied(source: Path = REPOSITORY) -> Iterator[Ground]:
    with TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder:
        root = Path(folder).resolve() / "tree"
        shutil.copytree(source, root, ignore=_LEFT_OUT)
        if (source / _FETCHED).is_dir():
            (root / _FETCHED).symlink_to(source / _FETCHED)
        ground = Ground(root)
        if ground.package() != root / "src" / "holdfast":
            raise RuntimeError(f"processes would import {ground.package()}, and no mutant would ever be seen")
        yield ground
