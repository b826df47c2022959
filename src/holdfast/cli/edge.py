"""The outer edge of the command line: from what happened to an exit code and, at most, two sentences on stderr.

0  done
1  the answer is "no": a violation, nothing found, refused
2  wrong usage or configuration; nothing was changed
3  the store is unreachable
70 a bug in Holdfast, with its traceback (so that it is never taken for a "no")
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from functools import cache

import typer

from holdfast.cli import output
from holdfast.cli.app import tree
from holdfast.domain.errors import ConfigurationError, HoldfastError, InvalidInput, StoreUnavailable

DONE, NO, WRONG, UNREACHABLE, BUG = 0, 1, 2, 3, 70


_commands = cache(tree)  # made from signatures, which takes time: once a process is enough


def run(arguments: Sequence[str] | None = None) -> int:
    output.prepare_streams()
    try:
        code = _commands().main(arguments, prog_name="holdfast", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else DONE
    except typer.TyperException as error:
        output.error(_usage(error))
        return error.exit_code
    except HoldfastError as error:
        output.error(str(error))
        return _exit_code(error)
    except BrokenPipeError:
        return _reader_left()
    except Exception:
        traceback.print_exc()
        output.error("this is a bug in Holdfast; please report it with the lines above")
        return BUG


def _exit_code(error: HoldfastError) -> int:
    match error:
        case StoreUnavailable():
            return UNREACHABLE
        case InvalidInput() | ConfigurationError():
            return WRONG
        case _:
            return NO


def _usage(error: typer.TyperException) -> str:
    message = error.format_message()
    context = getattr(error, "ctx", None)
    if not message or context is None:
        return message  # no arguments at all: the help has been printed instead
    if "--database" in message:
        return f"{message.rstrip('.')}. It goes before the command: holdfast --database URL COMMAND …"
    return f"{message.rstrip('.')}. See: {context.command_path} --help"


def _reader_left() -> int:
    """`holdfast jobs list | head -1`: nobody reads on. Python would complain again when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return NO
