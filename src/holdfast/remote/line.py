"""One way to a control plane: an HTTP client with connections of its own, and what becomes of its answers.

A question that got no answer is asked once more at once, because the usual reason is a connection that the other end
closed while it lay idle; after that it is the caller's to decide. Callers send only what may arrive twice, or say that
theirs may not. The token goes nowhere but to this URL: redirects are not followed.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Mapping
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx

from holdfast.domain.errors import InvalidInput, RequestFailed, StoreUnavailable
from holdfast.domain.json_text import parse
from holdfast.forks import after_fork, notice_fork
from holdfast.remote.refusals import NotDone, error_for, retry_after
from holdfast.remote.secret import Secret

KEPT_SECONDS = 60.0  # an idle connection; the other end may close it sooner
SHORTEST_TRY_SECONDS = 0.05
_JSON = {"Content-Type": "application/json"}
# What a control plane names when it cannot read a request at all, and how deep it reads.
_ENVELOPE = ("body", "Content-Type")
_MAX_DEPTH = 100
_NEVER_LEFT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class Line:
    """`waits`: a token that is refused counts as a store that is away."""

    def __init__(
        self, url: str, secret: Secret, *, timeout_seconds: float, connections: int, waits: bool = False
    ) -> None:
        self.place = url
        self._secret = secret
        self._timeout = timeout_seconds
        self._waits = waits
        self._quiet_until = 0.0
        self._socket: socket.socket | None = None
        self._is_hung_up = False
        self._connections = connections
        self._certificates = httpx.create_ssl_context()  # once: to read them takes longer than all the rest
        self._client = self._open_client()
        after_fork(self._after_fork)

    def get(self, path: str, **parameters: Any) -> Any:
        given = {name: value for name, value in parameters.items() if value is not None}
        return self._ask("GET", path, None, given, self._timeout, 2)

    def stream(self, path: str, last_event_id: str | None, **parameters: Any) -> httpx.Response:
        """A stream that ends by itself, read to its end."""
        since = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
        return self._response("GET", path, None, parameters, self._timeout, 2, since)

    def post(self, path: str, body: Any = None, *, once: bool = False, patience: float = 0.0) -> Any:
        """`once`: it may not arrive twice. `patience`: so much longer than usual the answer may take."""
        content = None if body is None else encode(body)
        return self._ask("POST", path, content, {}, self._timeout + patience, 1 if once or patience else 2)

    def put(self, path: str, body: Any) -> Any:
        return self._ask("PUT", path, encode(body), {}, self._timeout, 2)

    def patch(self, path: str, body: Any) -> Any:
        return self._ask("PATCH", path, encode(body), {}, self._timeout, 2)

    def delete(self, path: str) -> Any:
        return self._ask("DELETE", path, None, {}, self._timeout, 1)

    def hang_up(self) -> None:
        """For good, and from another thread: whoever waits for an answer on the last connection gets none."""
        self._is_hung_up = True
        if self._socket is not None:
            _shut(self._socket)

    def close(self) -> None:
        self._client.close()

    def _open_client(self) -> httpx.Client:
        return httpx.Client(
            base_url=self.place,
            verify=self._certificates,
            headers={"Accept": "application/json", "User-Agent": "holdfast"},
            limits=httpx.Limits(
                max_connections=self._connections,
                max_keepalive_connections=self._connections,
                keepalive_expiry=KEPT_SECONDS,
            ),
            follow_redirects=False,
            # A proxy's cookie would go with every later request, and one that is not ASCII would fail them all.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        )

    def _after_fork(self) -> None:
        """Leave the connections to the parent: to close their copies here sends nothing, to shut one down would."""
        is_closed = self._client.is_closed
        self._socket = None
        self._client = self._open_client()
        if is_closed:
            self._client.close()

    def _ask(
        self, method: str, path: str, content: bytes | None, parameters: Mapping[str, Any], seconds: float, tries: int
    ) -> Any:
        response = self._response(method, path, content, parameters, seconds, tries)
        try:
            found = json.loads(response.content)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise no_control_plane(self.place)
        return Reply(found, self.place)

    def _response(
        self,
        method: str,
        path: str,
        content: bytes | None,
        parameters: Mapping[str, Any],
        seconds: float,
        tries: int,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        deadline = time.monotonic() + seconds
        if time.monotonic() < self._quiet_until:
            raise NotDone(f"{self.place} asked for a pause")
        never_left = True
        while True:
            tries -= 1
            try:
                response = self._send(method, path, content, parameters, deadline - time.monotonic(), headers)
                if response.status_code == 401 and self._secret.is_another(response.request.headers["Authorization"]):
                    response = self._send(method, path, content, parameters, deadline - time.monotonic(), headers)
                return self._accepted(response)
            except httpx.RequestError as error:  # also a body that is not encoded as its header says
                # One try that may have arrived is enough: what the last one says of itself decides nothing.
                never_left = never_left and isinstance(error, _NEVER_LEFT)
                if tries <= 0 or deadline - time.monotonic() < SHORTEST_TRY_SECONDS:
                    said = f"{self.place} cannot be reached: {str(error) or type(error).__name__}"
                    raise (NotDone(said) if never_left else StoreUnavailable(said)) from error

    def _send(
        self,
        method: str,
        path: str,
        content: bytes | None,
        parameters: Mapping[str, Any],
        seconds: float,
        headers: Mapping[str, str] | None,
    ) -> httpx.Response:
        notice_fork()
        return self._client.request(
            method,
            path,
            content=content,
            params=dict(parameters) or None,  # an empty dict would take away the query that is in the path
            headers={"Authorization": self._secret.header(), **({} if content is None else _JSON), **(headers or {})},
            timeout=httpx.Timeout(max(seconds, SHORTEST_TRY_SECONDS)),  # negative after a pause of this process
            extensions={"trace": self._trace},
        )

    def _accepted(self, response: httpx.Response) -> httpx.Response:
        if not response.is_success:
            pause = retry_after(response.headers.get("Retry-After"))
            self._quiet_until = time.monotonic() + min(pause, self._timeout)
            error = error_for(response.status_code, response.content, self.place, waits=self._waits)
            if _is_damaged(error, response.request.content):
                raise RequestFailed(f"{self.place} received a request that was changed on the way ({error})")
            raise error
        return response

    def _trace(self, event: str, information: Mapping[str, Any]) -> None:
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            found = information["return_value"].get_extra_info("socket")
            self._socket = found if isinstance(found, socket.socket) else None
            if self._is_hung_up and self._socket is not None:
                _shut(self._socket)


class Reply(dict[str, Any]):
    """The body of a response. A control plane leaves no member out: a body without one was sent by something else."""

    def __init__(self, members: dict[str, Any], place: str) -> None:
        super().__init__(members)
        self._place = place

    def __missing__(self, name: str) -> Any:
        raise no_control_plane(self._place)


def no_control_plane(place: str) -> StoreUnavailable:
    return StoreUnavailable(f"{place} does not answer as a control plane does: check the URL, and any proxy before it")


def _is_damaged(error: Exception, sent: bytes) -> bool:
    """Whether the server could not read a body that was well-formed when sent."""
    if type(error) is not InvalidInput or error.field not in _ENVELOPE:
        return False
    try:
        parse(sent, _MAX_DEPTH)
    except InvalidInput:
        return False
    return True


def _shut(line: socket.socket) -> None:
    with contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)


def encode(body: Any) -> bytes:
    try:
        return _encoded(body)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(_culprit(body), f"holds a value that JSON cannot: {error}") from error


def _culprit(body: Any) -> str:
    """Which of its members it is."""
    for name, value in body.items() if isinstance(body, dict) else ():
        try:
            _encoded(value)
        except (TypeError, ValueError, RecursionError):
            return str(name)
    return "request"


def _encoded(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
