"""Access to the live view: requests need the token, the page's own origin, and the server's own name.

The server listens where other users of the machine, and pages of other sites in the owner's browser, can reach it. So
nothing but the page's own files goes out without the token (which is in the printed address behind `#`, so that no
browser sends or logs it), a `Host` that is not ours (DNS rebinding) and an `Origin` that is not ours (another site's
page) are refused, and no other site may read, frame or guess anything.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
from collections.abc import Mapping
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mrc_topo.base.errors import UsageError

#: The variable in which a proxy in front of the view, which knows the user, gives the token that it will send.
TOKEN: Final = "MRCLAB_WEB_TOKEN"
#: The limit for a command's JSON.
BODY_BYTES: Final = 64 << 10
HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def new_token(environment: Mapping[str, str] = os.environ) -> str:
    """Return a random token of 256 bits, or the one that a proxy has put into the environment (`TOKEN`).

    Raises:
        UsageError: the variable holds something that is guessed more easily, or is not a token.
    """
    given = environment.get(TOKEN)
    if given is None:
        return secrets.token_urlsafe(32)
    if re.fullmatch(r"[A-Za-z0-9_-]{43,200}", given) is None:
        raise UsageError(
            f"{TOKEN}: is not a token of at least 43 letters, digits, - and _; Python's `secrets.token_urlsafe(32)` "
            "makes one"
        )
    return given


class Guard:
    """Passes a request on to `app`, or refuses it.

    Args:
        token: the token that `Authorization: Bearer` must have where `open_to_all` does not hold.
        hosts: the server's names, as `HOST:PORT`.
        open_to_all: paths that return no data.
    """

    def __init__(self, app: ASGIApp, token: str, hosts: frozenset[str], open_to_all: frozenset[str]) -> None:
        self.app = app
        self.token = token.encode()
        self.hosts = hosts
        self.open_to_all = open_to_all

    def problem(self, scope: Scope) -> tuple[int, str] | None:
        """Return why a request is refused: status and text."""
        headers = Headers(scope=scope)
        if len(headers.getlist("host")) != 1 or headers["host"].lower() not in self.hosts:
            return 421, "this server is known by another name; open the address that mrclab printed"
        origins = headers.getlist("origin")
        if any(origin.lower() not in {f"http://{host}" for host in self.hosts} for origin in origins):
            return 403, "requests of other pages are refused"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and (
            scope["method"] != "GET" or scope["path"] not in self.open_to_all
        ):
            return 403, "requests of other sites are refused"
        if scope["method"] in ("GET", "HEAD") and scope["path"] in self.open_to_all:
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self.token):
            return 401, "no or wrong token; open the address that mrclab printed, with all that is behind the #"
        if scope["method"] == "POST":
            if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
                return 415, "commands are JSON"
            length = headers.get("content-length", "")
            if not (length.isascii() and length.isdigit()) or int(length) > BODY_BYTES:
                return 413, f"a command has at most {BODY_BYTES} bytes"
        return None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a refused request with its HTTP status; pass any other on to the wrapped ASGI application."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", ()), *extra]}
            await send(message)

        problem = self.problem(scope)
        if problem is not None:
            await PlainTextResponse(problem[1] + "\n", problem[0])(scope, receive, guarded)
            return
        await self.app(scope, receive, guarded)
