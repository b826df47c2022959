"""Find Debian's pgbouncer for the tests, and fetch it when it is not installed. Prints the program's path.

Nothing on the system is touched and nobody needs to be root: apt downloads the package, and the libraries it needs that
are missing, and they are unpacked in a folder of the project that git ignores. Where package lists are missing, apt
gets lists of its own in that folder. Exit status 1 where there is no apt or it cannot reach its packages: then the
tests that need pgbouncer are skipped, and say so.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CACHE = Path(__file__).resolve().parents[1] / ".cache"
FETCHED = CACHE / "pgbouncer"
PROGRAM = FETCHED / "usr/sbin/pgbouncer"
LIBRARIES = FETCHED / "lib"
NEVER_FETCHED = ("libc6",)  # it goes with the machine's loader
DEPTH = 3


def installed() -> Path | None:
    """On PATH or where Debian puts it, which is on root's PATH only; else what was fetched earlier."""
    found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
    if found is not None:
        return Path(found)
    return PROGRAM if PROGRAM.exists() else None


def fetch() -> Path | None:
    if not all(map(shutil.which, ("apt-get", "dpkg-deb", "dpkg-query"))):
        return None
    CACHE.mkdir(exist_ok=True)
    with locked(CACHE / "pgbouncer.lock"):
        if PROGRAM.exists():  # somebody else has been at it while we waited
            return PROGRAM
        with tempfile.TemporaryDirectory(dir=CACHE, prefix="fetching-") as folder:
            Path(folder).chmod(0o755)  # the tests' servers are not root
            tree = Path(folder) / "tree"
            if not complete(tree, Path(folder)):
                return None
            tree.rename(FETCHED)
    return PROGRAM


def complete(tree: Path, workshop: Path) -> bool:
    """The program with all that it needs and this machine lacks."""
    wanted = ["pgbouncer"]
    for _ in range(DEPTH):
        unpacked = [package for name in wanted if (package := unpacked_package(name, tree, workshop)) is not None]
        gather_libraries(tree)
        if runs(tree):
            return True
        wanted = [name for package in unpacked for name in missing_libraries(package)]
    return False


def unpacked_package(name: str, tree: Path, workshop: Path) -> Path | None:
    downloads = workshop / name
    downloads.mkdir(exist_ok=True)
    if not download(name, downloads, []):
        own = own_lists(workshop)
        if not run(["apt-get", *own, "update"], downloads) or not download(name, downloads, own):
            return None
    package = next(downloads.glob("*.deb"))
    return package if run(["dpkg-deb", "-x", str(package), str(tree)], downloads) else None


def download(name: str, folder: Path, options: list[str]) -> bool:
    # Without the sandbox's own user, who may not be able to write here.
    return run(["apt-get", "-o", "APT::Sandbox::User=root", *options, "download", name], folder)


def own_lists(workshop: Path) -> list[str]:
    """Options that make apt keep its lists here, from the machine's own sources."""
    folders = {"Dir::State": workshop / "state", "Dir::Cache": workshop / "cache"}
    for folder in folders.values():
        (folder / "lists/partial").mkdir(parents=True, exist_ok=True)
        (folder / "archives/partial").mkdir(parents=True, exist_ok=True)
    settings = {**folders, "Dir::State::status": "/var/lib/dpkg/status", "APT::Sandbox::User": "root"}
    return [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]


def missing_libraries(package: Path) -> Iterator[str]:
    for alternative in output(["dpkg-deb", "-f", str(package), "Depends"]).split(","):
        name = alternative.split("|")[0].split("(")[0].strip()
        status = output(["dpkg-query", "-W", "-f", "${Status}", name]) if name else ""
        if name.startswith("lib") and name not in NEVER_FETCHED and "ok installed" not in status:
            yield name


def gather_libraries(tree: Path) -> None:
    """Into one folder, whatever the architecture is called."""
    gathered = tree / LIBRARIES.name
    for found in [path for path in tree.rglob("*.so.*") if path.parent != gathered]:
        if not (gathered / found.name).exists():
            gathered.mkdir(exist_ok=True)
            shutil.copy2(found, gathered / found.name)


def runs(tree: Path) -> bool:
    program = tree / PROGRAM.relative_to(FETCHED)
    return program.exists() and run([str(program), "--version"], tree, LD_LIBRARY_PATH=str(tree / LIBRARIES.name))


def run(command: list[str], folder: Path, **environment: str) -> bool:
    variables = {**os.environ, **environment, "LC_ALL": "C"}
    done = subprocess.run(
        command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    return done.returncode == 0


def output(command: list[str]) -> str:
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False).stdout


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> int:
    found = installed() or fetch()
    if found is None:
        print("no pgbouncer here, and apt cannot fetch it: install pgbouncer, or put it on PATH", file=sys.stderr)
        return 1
    print(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
