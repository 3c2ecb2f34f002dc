"""The form of FastAPI's answers."""

from __future__ import annotations

from fastapi.responses import JSONResponse


class JsonLine(JSONResponse):
    """An answer in JSON that ends its line, for people at a terminal."""

    def render(self, content: object) -> bytes:
        return super().render(content) + b"\n"
