"""A process of a crew: ``python -m tests.chaos.member DESCRIPTOR``, where the descriptor is its end of the line."""

import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any


def main(descriptor: int) -> None:
    line: Connection[Any, Any] = Connection(descriptor)
    while True:
        try:
            errand, arguments = line.recv()
        except EOFError:
            return
        line.send("ready")
        line.recv()
        try:
            answer = (True, errand(*arguments))
        except BaseException:
            answer = (False, traceback.format_exc())
        line.send(answer)


if __name__ == "__main__":
    main(int(sys.argv[1]))
