"""What every table needs."""

from __future__ import annotations

from sqlalchemy import MetaData

from holdfast.domain.lifecycle import State

metadata = MetaData()


def in_states(states: tuple[State, ...], column: str = "state") -> str:
    return f"{column} IN ({', '.join(repr(str(state)) for state in states)})"
