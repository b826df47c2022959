"""A program in any language as a task: what to start, and how its end is judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.domain.errors import InvalidInput
from holdfast.domain.names import check_integer

EXIT_PERMANENT = 65  # EX_DATAERR of sysexits.h
MAX_OUTPUT_BYTES = 1024 * 1024
PAYLOAD = "{payload}"  # in an argument: the payload's JSON goes there


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """`env` is added to the few variables that a command gets; `permanent_exit_codes` say that a retry is no use."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    permanent_exit_codes: Sequence[int] = (EXIT_PERMANENT,)
    max_output_bytes: int = MAX_OUTPUT_BYTES

    def __post_init__(self) -> None:
        object.__setattr__(self, "argv", _argv(self.argv))
        object.__setattr__(self, "env", _environment(self.env))
        if self.cwd is not None:
            object.__setattr__(self, "cwd", _word(str(self.cwd), "cwd"))
        object.__setattr__(self, "permanent_exit_codes", _exit_codes(self.permanent_exit_codes))
        check_integer(self.max_output_bytes, "max_output_bytes", 0, 1 << 30)


def _argv(value: Any) -> tuple[str, ...]:
    if isinstance(value, str | bytes):
        raise InvalidInput("argv", 'must be a list such as ["program", "argument"]: a command is never run by a shell')
    if not isinstance(value, Sequence) or not value:
        raise InvalidInput("argv", f"must be a list with at least the program, got {value!r}")
    words = tuple(_word(word, f"argv[{index}]") for index, word in enumerate(value))
    if not words[0]:
        raise InvalidInput("argv[0]", "is the program to run and must not be empty")
    if PAYLOAD in words[0]:
        raise InvalidInput("argv[0]", f"must not contain {PAYLOAD}: who enqueues a job must not choose the program")
    return words


def _environment(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise InvalidInput("env", f"must map names to values, got {type(value).__name__}")
    for name in value:
        if not _word(name, "env") or "=" in name:
            raise InvalidInput("env", f"{name!r} cannot be the name of an environment variable")
    return {name: _word(text, f"env.{name}") for name, text in value.items()}


def _exit_codes(value: Any) -> tuple[int, ...]:
    name = "permanent_exit_codes"
    if not isinstance(value, tuple | list | set | frozenset | range):
        raise InvalidInput(name, f"must be a tuple of exit codes, got {value!r}")
    return tuple(check_integer(code, name, 1, 255) for code in value)


def _word(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise InvalidInput(name, f"must be a string, got {type(value).__name__}")
    if "\x00" in value:
        raise InvalidInput(name, "must not contain a NUL character")
    return value
