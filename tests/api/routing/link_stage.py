"""A broker whose application a test has replaced, for both ends of a link."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from fencelog.api.http.asgi import Receive, Scope, Send
from fencelog.api.routing.link_frames import RequestHead
from fencelog.api.routing.served_link import LinkHost
from fencelog.broker.limits import LINK_WINDOW_BYTES
from fencelog.ledgers.rpc.authentication import SharedSecret
from tests.support.fake_broker import FakeBookies, FakeBroker, app_over, serving


@dataclass
class Served:
    """A broker whose application a test has replaced by a few paths."""

    url: str = ""
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    sent_bytes: int = 0
    host: LinkHost | None = None

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        event = await receive()
        match scope["path"]:
            case "/echo":
                await _answer(send, event["body"])
            case "/flood":
                await send({"type": "http.response.start", "status": 200, "headers": []})
                while self.sent_bytes < 16 * LINK_WINDOW_BYTES and not self.gone.is_set():
                    await send(_part(bytes(1024)))
                    self.sent_bytes += 1024
                await send({"type": "http.response.body", "body": b""})
            case "/wait":
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send(_part(b"begun"))
                while (await receive())["type"] != "http.disconnect":
                    pass
                self.gone.set()
            case "/fail":
                raise RuntimeError("a bug")


async def _answer(send: Send, body: bytes) -> None:
    await send({"type": "http.response.start", "status": 201, "headers": [(b"a", b"b")]})
    await send({"type": "http.response.body", "body": body})


def _part(body: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": True}


@contextlib.asynccontextmanager
async def serve_paths(secret: SharedSecret | None = None) -> AsyncIterator[Served]:
    """Serve the paths of ``Served``, only to brokers with the secret if there is one."""
    app = app_over(FakeBroker(), FakeBookies())
    found = Served()
    assert app.host is not None
    found.host = app.host
    app.host.app, app.host.authenticator = found.app, secret
    async with serving(app) as found.url:
        yield found


def get(path: bytes, method: str = "GET") -> RequestHead:
    return RequestHead(method, path, b"", [])
