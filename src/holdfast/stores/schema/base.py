"""What every table needs."""

from __future__ import annotations

from sqlalchemy import MetaData

from holdfast.domain.lifecycle import State

metadata = MetaData()


def in_states(states: tuple[State, ...], column: str = "state") -> str:
    return f"{column} IN ({', '.join(repr(str(state)) for state in states)})"


def still_in(*states: State, row: str = "j") -> str:
    """Of rows that are named by their ids: in words that no partial index knows.

    A planner that takes the index of running or of ready jobs for empty, as it does before the table was first
    analysed, would look for the ids in all of it, one after the other.
    """
    return in_states(states, f"coalesce({row}.state, '')")
