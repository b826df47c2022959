"""Find a program of Debian's for the tests (`pgbouncer`, `curl`), or fetch it when it is not installed; print its path.

Nothing on the system is touched and nobody needs to be root: apt downloads the package, and the libraries it needs that
are missing, and they are unpacked in a folder of the project that git ignores. Where package lists are missing, apt
gets lists of its own in that folder. What was fetched is run with the libraries beside it, `lib` in its folder. Exit
status 1 where there is no apt or it cannot reach its packages: then the tests that need the program say so.
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
PROGRAMS = {"pgbouncer": "usr/sbin/pgbouncer", "curl": "usr/bin/curl"}  # the package, and where its program is
LIBRARIES = "lib"
NEVER_FETCHED = ("libc6",)  # it goes with the machine's loader
DEPTH = 4


def fetched(name: str) -> Path:
    return CACHE / name / PROGRAMS[name]


def installed(name: str) -> Path | None:
    """On PATH or where Debian puts it, which may be on root's PATH only; else what was fetched earlier."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if found is not None:
        return Path(found)
    return fetched(name) if fetched(name).exists() else None


def fetch(name: str) -> Path | None:
    if not all(map(shutil.which, ("apt-get", "dpkg-deb", "dpkg-query"))):
        return None
    CACHE.mkdir(exist_ok=True)
    with locked(CACHE / f"{name}.lock"):
        if fetched(name).exists():  # somebody else has been at it while we waited
            return fetched(name)
        with tempfile.TemporaryDirectory(dir=CACHE, prefix="fetching-") as folder:
            Path(folder).chmod(0o755)  # the tests' servers are not root
            tree = Path(folder) / "tree"
            if not complete(name, tree, Path(folder)):
                return None
            tree.rename(CACHE / name)
    return fetched(name)


def complete(name: str, tree: Path, workshop: Path) -> bool:
    """The program with all that it needs and this machine lacks."""
    wanted = [name]
    for _ in range(DEPTH):
        unpacked = [package for item in wanted if (package := unpacked_package(item, tree, workshop)) is not None]
        gather_libraries(tree)
        if run([str(tree / PROGRAMS[name]), "--version"], tree, LD_LIBRARY_PATH=str(tree / LIBRARIES)):
            return True
        wanted = [library for package in unpacked for library in missing_libraries(package)]
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
    gathered = tree / LIBRARIES
    for found in [path for path in tree.rglob("*.so.*") if path.parent != gathered]:
        if not (gathered / found.name).exists():
            gathered.mkdir(exist_ok=True)
            shutil.copy2(found, gathered / found.name)


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


def main(name: str) -> int:
    found = installed(name) or fetch(name)
    if found is None:
        print(f"no {name} here, and apt cannot fetch it: install {name}, or put it on PATH", file=sys.stderr)
        return 1
    print(found)
    return 0


if __name__ == "__main__":
    if sys.argv[1:] not in [[name] for name in PROGRAMS]:
        sys.exit(f"usage: {sys.argv[0]} {'|'.join(PROGRAMS)}")
    sys.exit(main(sys.argv[1]))
