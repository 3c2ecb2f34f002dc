"""Query parameters of the routes that FastAPI serves."""

from __future__ import annotations

from fastapi import Request

from fencelog.ledgers.errors import ErrorCode, FencelogError


def refuse_query(request: Request, *allowed: str) -> None:
    """Refuse unknown parameters: a misspelt one is an error, not a default. Raises
    FencelogError(BAD_REQUEST)."""
    for name in request.query_params:
        if name not in allowed:
            known = ", ".join(sorted(allowed)) or "none"
            raise FencelogError(
                ErrorCode.BAD_REQUEST,
                f"unknown query parameter {name!r}; known here: {known}",
                parameter=name,
            )
