"""Who may change what is served: whoever has the token."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Header

from service.problems import RefusedError, problem

_CHALLENGE = ((b"www-authenticate", b"Bearer"),)
Dependency = Callable[[str | None], Awaitable[None]]


def needs_token(token: str | None) -> Dependency:
    """Refuses whoever lacks the token; where none is configured, nobody."""

    async def admitted(authorization: Annotated[str | None, Header()] = None) -> None:
        given = (authorization or "").encode("utf-8", "replace")
        if token is not None and not hmac.compare_digest(given, b"Bearer " + token.encode()):
            detail = "Authorization: Bearer with the admin token is needed"
            raise RefusedError(problem(401, "unauthorized", detail), _CHALLENGE)

    return admitted


async def nothing_here() -> None:
    """For routes that are not there without a token."""
    raise RefusedError(problem(404, "not-found", "there is nothing here"))
