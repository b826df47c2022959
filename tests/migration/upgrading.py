"""A process that upgrades a database: ``python -m tests.migration.upgrading URL``.

It says "ready", begins when it is sent a line, and prints the revisions before and after.
"""

import sys

from holdfast.stores.upgrade import upgrade
from tests.migration.databases import open_engine


def main(url: str) -> None:
    engine = open_engine(url)
    print("ready", flush=True)
    sys.stdin.readline()
    print(*upgrade(engine), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
