"""`holdfast version`"""

from __future__ import annotations

import platform
import sqlite3

import typer

import holdfast
from holdfast.cli import output
from holdfast.cli.session import Json, begin


def version(context: typer.Context, json: Json = False) -> None:
    """The version of Holdfast, and of what it runs on."""
    versions = {
        "version": holdfast.__version__,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    }
    if begin(context, json).json:
        output.document(versions)
    else:
        output.line(f"holdfast {versions['version']} (Python {versions['python']}, SQLite {versions['sqlite']})")
