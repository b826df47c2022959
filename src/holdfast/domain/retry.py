"""When to try again: exponential, linear or fixed waits, with jitter and a cap of 24 hours; and for how long, all told,
a job may put itself off.

A policy is stored on the job's row when the job is enqueued, because whoever settles the job (a control plane, the
reaper) may not be able to import the task. Randomness is an argument: `delay` is a pure function.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from holdfast.domain import durations
from holdfast.domain.errors import InvalidInput

Kind = Literal["exponential", "linear", "fixed"]
KINDS: tuple[str, ...] = get_args(Kind)
CAP_SECONDS = 86400.0
_FIELDS = ("kind", "base", "jitter", "cap", "snooze_limit")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    kind: Kind = "exponential"
    base: float = 10.0
    jitter: float = 0.2
    cap: float = CAP_SECONDS
    snooze_limit: float | None = None  # what the snoozes of a job may add up to; None: anything

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InvalidInput("retry.kind", f"must be one of {', '.join(KINDS)}, got {self.kind!r}")
        _check_range("retry.base", self.base, 0.0, CAP_SECONDS)
        _check_range("retry.jitter", self.jitter, 0.0, 1.0)
        _check_range("retry.cap", self.cap, 0.0, CAP_SECONDS)
        if self.snooze_limit is not None:
            durations.seconds(self.snooze_limit, "retry.snooze_limit")

    def delay(self, failures: int, random: float) -> float:
        """Seconds to wait after the `failures`-th charge; `random` in [0, 1) places it within the jitter."""
        spread = 1.0 + self.jitter * (2.0 * random - 1.0)
        return min(self.cap, self._steps(max(failures, 1)) * spread)

    def _steps(self, failures: int) -> float:
        match self.kind:
            case "exponential":
                # Beyond 2^40 every base is far over the cap; the bound keeps the power from overflowing.
                return min(self.cap, self.base * 2.0 ** min(failures - 1, 40))
            case "linear":
                return min(self.cap, self.base * failures)
            case "fixed":
                return min(self.cap, self.base)

    def to_json(self) -> dict[str, Any]:
        limit = {} if self.snooze_limit is None else {"snooze_limit": self.snooze_limit}
        return {"kind": self.kind, "base": self.base, "jitter": self.jitter, "cap": self.cap, **limit}

    @classmethod
    def from_json(cls, data: dict[str, Any] | None) -> RetryPolicy:
        """The stored policy; an empty column means the default one."""
        if data is None:
            return DEFAULT_RETRY
        if not isinstance(data, dict):
            raise InvalidInput("retry", f"must be an object with {', '.join(_FIELDS)}")
        unknown = sorted(set(data) - set(_FIELDS))
        if unknown:
            raise InvalidInput("retry", f"unknown option {unknown[0]!r}; known are {', '.join(_FIELDS)}")
        kind = data.get("kind", "exponential")
        limit = data.get("snooze_limit")
        return cls(
            kind=kind,
            base=durations.seconds(data.get("base", 10.0), "retry.base"),
            jitter=_number("retry.jitter", data.get("jitter", 0.2)),
            cap=durations.seconds(data.get("cap", CAP_SECONDS), "retry.cap"),
            snooze_limit=None if limit is None else durations.seconds(limit, "retry.snooze_limit"),
        )


def _check_range(field: str, value: float, low: float, high: float) -> None:
    if not low <= _number(field, value) <= high:
        raise InvalidInput(field, f"must be between {low:g} and {high:g}, got {value!r}")


def _number(field: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(field, f"must be a number, got {value!r}")
    if abs(value) > CAP_SECONDS:
        raise InvalidInput(field, f"must be at most {CAP_SECONDS:g}")
    return float(value)


DEFAULT_RETRY = RetryPolicy()
