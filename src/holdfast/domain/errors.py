"""Every error Holdfast raises on purpose, in one tree.

HoldfastError
├── InvalidInput          a value the caller gave breaks a rule; nothing was stored
│   └── Conflict          the value is well-formed but clashes with what is stored
├── NotFound              no such job, queue or source
├── ConfigurationError    settings, URL or installation
│   └── SchemaMismatch    the database's tables are older or newer than this code
└── StoreUnavailable      the database cannot be reached, or stayed busy for too long

A lost lease is *not* here: it is an answer (see `domain/answers.py`), not an exception.
"""

from __future__ import annotations


class HoldfastError(Exception):
    """Something Holdfast could not do."""


class InvalidInput(HoldfastError, ValueError):
    """A value breaks a rule."""

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(f"{field}: {rule}")
        self.field = field
        self.rule = rule


class Conflict(InvalidInput):
    """A value clashes with what is already stored."""


class NotFound(HoldfastError, LookupError):
    """There is no such thing."""


class ConfigurationError(HoldfastError):
    """The configuration cannot work."""


class SchemaMismatch(ConfigurationError):
    """The database schema and this version of Holdfast do not fit together."""


class StoreUnavailable(HoldfastError):
    """The store cannot be reached."""
