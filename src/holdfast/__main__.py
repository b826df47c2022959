"""`holdfast` and `python -m holdfast`: the command line as a process."""

import gc
import sys

from holdfast.cli import main


def run() -> int:
    # Loading modules makes hundreds of thousands of objects that stay. With Python's threshold of 700 the collector
    # would walk them again and again: a third of the CPU time of a command.
    gc.set_threshold(10_000, 10, 10)
    try:
        return main()
    finally:
        gc.freeze()  # the process ends, and the collector need not walk everything once more


if __name__ == "__main__":
    sys.exit(run())
