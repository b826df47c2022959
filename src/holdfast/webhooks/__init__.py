"""Webhooks: signed messages that tell when a job has ended. `verify` is for those who receive them."""

from __future__ import annotations

from holdfast.webhooks.signing import WrongSignature, verify

__all__ = ["WrongSignature", "verify"]
