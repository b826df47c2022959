"""Deliver one message: sign it, send it, and decide by the response what becomes of the delivery.

2xx                           delivered
429, 503 with a Retry-After   retried after that time; uses no attempt
400, 410, 413, 415, 422, 451  failed permanently: the receiver rejects this message
anything else                 retried, also 401, 403, 404 and 405: an ingress sends them while the receiver is deployed;
                              redirects are not followed
"""

from __future__ import annotations

import email.utils
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from holdfast.domain.durations import spoken
from holdfast.domain.errors import ConfigurationError, InvalidInput
from holdfast.domain.spec import encode_json
from holdfast.domain.webhook import Target, parse_url
from holdfast.tasks.flow import Permanent, Snooze
from holdfast.webhooks.permission import ALLOW_VARIABLE, Permission, Refused, Resolve, Unresolved, look_up
from holdfast.webhooks.sending import Answer, Unreachable, post
from holdfast.webhooks.signing import SECRET_PREFIX, secrets_of, signed_headers

SECRET_VARIABLE = "HOLDFAST_WEBHOOK_SECRET"
LONGEST_WAIT_SECONDS = 3600.0
MOST_WAITS = 50  # a receiver that always says "later" is charged like any other from then on
_REJECTS_MESSAGE = (400, 410, 413, 415, 422, 451)
_SAYS_WHEN = (429, 503)


class DeliveryFailed(Exception):
    """It did not arrive this time."""


class DeliveryRefused(Exception):
    """It will never arrive as things are."""


@dataclass(frozen=True, slots=True)
class Sender:
    """What a worker needs in order to deliver."""

    secrets: tuple[bytes, ...] = field(repr=False)
    permission: Permission = field(default_factory=Permission)
    resolve: Resolve = look_up

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Sender:
        environment = os.environ if environment is None else environment
        secrets = secrets_of(environment.get(SECRET_VARIABLE, ""))
        if not secrets:
            raise ConfigurationError(
                f"no webhook is sent unsigned: set {SECRET_VARIABLE} where the workers run, to"
                f" {SECRET_PREFIX} and the output of `openssl rand -base64 32`, then requeue this job"
            )
        return cls(secrets, Permission.from_text(environment.get(ALLOW_VARIABLE, "")))

    def deliver(self, url: str, event: str, job: Mapping[str, Any], delivery_id: str, attempt: int = 1) -> int:
        """The status with which the receiver took it; an exception that the engine understands if it did not."""
        try:
            target = parse_url(url)
            addresses = self.permission.addresses(target, self.resolve)
            answer = post(target, addresses, *self._message(event, job, delivery_id))
        except (InvalidInput, Refused) as error:
            raise Permanent(DeliveryRefused(str(error))) from None
        except (Unresolved, Unreachable) as error:
            raise DeliveryFailed(str(error)) from None
        _judge(target, answer, attempt)
        return answer.status

    def _message(self, event: str, job: Mapping[str, Any], delivery_id: str) -> tuple[dict[str, str], bytes]:
        body = encode_json({"type": event, "timestamp": job.get("finished_at"), "data": _told(job)}).encode()
        headers = {"Content-Type": "application/json", "User-Agent": "holdfast-webhook/1"}
        return headers | signed_headers(self.secrets, delivery_id, int(time.time()), body), body


def _told(job: Mapping[str, Any]) -> dict[str, Any]:
    """What others learn of a job: of its error not the stack, which tells about the inside of this house."""
    told = dict(job)
    if isinstance(error := job.get("error"), Mapping):
        told["error"] = {"code": error.get("code"), "message": error.get("message")}
    if job.get("result_omitted"):
        told.pop("result", None)
    return told


def _judge(target: Target, answer: Answer, attempt: int) -> None:
    status = answer.status
    if 200 <= status < 300:
        return
    said = f"{target.host} answered {status} {answer.reason[:100]}".rstrip()
    if status in _SAYS_WHEN and attempt <= MOST_WAITS:
        seconds = wait_seconds(answer.retry_after, datetime.now(UTC))
        if seconds is not None:
            raise Snooze(seconds, f"{said} and asks to wait {spoken(seconds)}")
    if status in _REJECTS_MESSAGE:
        raise Permanent(DeliveryRefused(f"{said}; requeue this job once the receiver wants it"))
    if 300 <= status < 400:
        raise DeliveryFailed(f"{said}; redirects are not followed, so name the place itself")
    raise DeliveryFailed(said)


def wait_seconds(retry_after: str | None, now: datetime) -> float | None:
    """What a Retry-After header asks for, seconds or a date, within bounds; None if it says nothing readable."""
    text = (retry_after or "").strip()
    if text.isascii() and text.isdecimal():
        seconds = float(text[:10])
    else:
        try:
            moment = email.utils.parsedate_to_datetime(text)
        except (TypeError, ValueError, IndexError, OverflowError):
            return None
        seconds = ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - now).total_seconds()
    return min(LONGEST_WAIT_SECONDS, max(1.0, seconds))
