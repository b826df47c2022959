"""A way to a control plane on which an answer gets lost; whoever asks again reaches another control plane."""

from __future__ import annotations

from urllib.parse import urlsplit

from tests.chaos.proxy import ForgetfulProxy


class Crossing(ForgetfulProxy):
    """Leads to the first of two until an answer was lost, and from then on to the second."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first)
        self._second = _address(second)

    def is_to_be_lost(self, question: bytes) -> bool:
        lost = super().is_to_be_lost(question)
        if lost:
            self._server = self._second
        return lost


def _address(url: str) -> tuple[str, int]:
    parsed = urlsplit(url)
    return parsed.hostname or "", parsed.port or 0
