"""How a command that goes on running writes its log."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from holdfast.cli.session import Session

if TYPE_CHECKING:
    from holdfast.observe.logs import Logger

Format = Literal["pretty", "json"]
LogFormat = Annotated[Format | None, typer.Option(help="json unless a person looks on.")]
LogLevel = Annotated[Literal["debug", "info", "warning", "error"], typer.Option()]


def make_logger(session: Session, log_format: Format | None, log_level: str) -> Logger:
    from holdfast.observe.logs import configure

    fitting: Format = "pretty" if sys.stderr.isatty() else "json"
    return configure("json" if session.json else log_format or fitting, log_level)
