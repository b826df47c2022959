"""The settings under which the plan of a statement does not depend on statistics, nor on what is asked for."""

from __future__ import annotations

SETTINGS = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}


def function_settings(**more: str) -> str:
    """As clauses of CREATE FUNCTION."""
    return " ".join(f"SET {name} = '{value}'" for name, value in (SETTINGS | more).items())
