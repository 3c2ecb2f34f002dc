"""The console in a real browser: headless Chromium of the machine, over a whole service."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import (
    Browser,
    Error,
    Page,
    Request,
    Route,
    async_playwright,
    expect,
)

from fencelog.api.processes.standalone import StandaloneConfig, standalone
from fencelog.api.server.together import TOGETHER_PATH
from tests.support.network.browser import ARGUMENTS, browser_path
from tests.support.network.http_client import http_client

TOPIC = "shop/orders"
TIMEOUT_MS = 60_000
"""The time for anything to be seen: the service, the test and the browser share a busy machine."""
NEVER_ASKED = "**/never-asked"
"""A path of which no page has a request."""
LOOKS = [("dark", 360), pytest.param("light", 1920, marks=pytest.mark.thorough)]
"""Color schemes and widths in pixels."""
TABLE_ROWS = 1000
MAKE_TABLES = f"""async (times) => {{
    for (let n = 0; n < times; n += 1) {{
        const table = document.createElement('table');
        for (let row = 0; row < {TABLE_ROWS}; row += 1) {{
            const cells = table.insertRow();
            for (let cell = 0; cell < 4; cell += 1) cells.insertCell().append(`${{row}} ${{cell}}`);
        }}
        document.body.append(table);
        table.getBoundingClientRect();
        table.remove();
        await new Promise((done) => {{ requestAnimationFrame(() => {{ setTimeout(done); }}); }});
    }}
}}"""
"""A measure of the browser's speed on this machine at this moment."""

_COMPLAINTS = ("error", "warning")

OpenPage = Callable[..., AbstractAsyncContextManager[Page]]


def reads(path: str) -> re.Pattern[str]:
    """Return the pattern of requests that read a path which contains this, with others."""
    return re.compile(re.escape(TOGETHER_PATH) + ".*" + re.escape(quote(path, safe="")))


async def answer_part(route: Route, path: str, body: Any, status: int = 200) -> None:
    """Answer a request for what contains ``path`` with this body, and whatever else it asks for as
    the service does."""
    asked = parse_qsl(urlsplit(route.request.url).query)
    others = [(name, value) for name, value in asked if name != "path" or path not in value]
    url = f"{route.request.url.partition('?')[0]}?{urlencode(others)}"
    lines = [
        json.dumps({"path": value, "status": status, "etag": None, "body": body}) + "\n"
        for name, value in asked
        if name == "path" and path in value
    ]
    with suppress(Error):  # The page is closed while others still answer.
        answer = await route.fetch(url=url)
        await route.fulfill(response=answer, body=await answer.text() + "".join(lines))


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def browser() -> AsyncIterator[Browser]:
    """Chromium, which these tests need: without it they fail and say how to get it."""
    found = browser_path()
    if found is None:
        pytest.fail(
            "Chromium is needed for the tests of the console: apt install chromium-headless-shell"
        )
    async with async_playwright() as play:
        browser = await play.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The URL of a service with a topic of several ledgers, messages and two subscriptions."""
    config = StandaloneConfig(tmp_path_factory.mktemp("service"), "127.0.0.1:0")
    async with standalone(config) as service:
        url = service.announcement["http"]
        async with http_client(url) as http:
            await _fill(http)
        yield url


async def _fill(http: httpx.AsyncClient) -> None:
    topic = f"/v1/topics/{TOPIC}"
    (await http.put(topic, json={"roll_entries": 3, "retention_bytes": 10**9})).raise_for_status()
    for name in ("billing", "search-index"):
        (await http.put(f"{topic}/subscriptions/{name}", json={})).raise_for_status()
    for number in range(12):
        body = {
            "messages": [{"json": {"order": number, "line": n}, "key": f"k{n}"} for n in range(3)]
        }
        (await http.post(f"{topic}/messages:batch", json=body)).raise_for_status()
    pulled = await http.post(f"{topic}/subscriptions/billing:pull", json={"max": 20})
    ids = [each["ack_id"] for each in pulled.json()["messages"]]
    acked = await http.post(f"{topic}/subscriptions/billing:ack", json={"ack_ids": ids})
    acked.raise_for_status()


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def http(service: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the service."""
    async with httpx.AsyncClient(base_url=service, trust_env=False, timeout=20) as client:
        yield client


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def modules(browser: Browser, service: str) -> AsyncIterator[Page]:
    """A page that runs code with the modules of the console."""
    page = await browser.new_page()
    await page.goto(f"{service}/console/?screen=nothing")
    yield page
    await page.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """The text of axe-core, as its Python package brings it."""
    return files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")


@pytest.fixture
def open_page(browser: Browser, service: str) -> OpenPage:
    """Open a page of the console, see ``page_opener``."""
    return page_opener(browser, service)


async def cost_of_step(page: Page, script: str, turns: int = 4, times: int = 3) -> float:
    """Return the processor time of a step of a script over that of making ``TABLE_ROWS`` rows of a
    table in the same page: both take turns, so that neither a slow machine nor what else runs there
    changes it. The script takes how many steps it has to do: ``turns`` times ``times`` in all."""
    session = await page.context.new_cdp_session(page)
    await session.send("Performance.enable", {"timeDomain": "threadTicks"})

    async def used_s() -> float:
        metrics = (await session.send("Performance.getMetrics"))["metrics"]
        return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))

    took_s: dict[str, list[float]] = {script: [], MAKE_TABLES: []}
    for _ in range(turns):
        for each, all_s in took_s.items():
            before_s = await used_s()
            await page.evaluate(each, times)
            all_s.append(await used_s() - before_s)
    cost = min(took_s[script]) / min(took_s[MAKE_TABLES])
    print(f"a step costs {cost:.2f}: {[*took_s.values()]}")  # noqa: T201 - measured
    return cost


def page_opener(browser: Browser, service: str) -> OpenPage:
    """Return what opens a page of a service's console. An error in it, a warning of the browser
    (what the policy forbids among them), or a request to another origin fails the test, unless it
    ``expects`` them."""

    @asynccontextmanager
    async def opened(
        query: str = "", *, expects: tuple[str, ...] = (), **settings: Any
    ) -> AsyncIterator[Page]:
        context = await browser.new_context(
            reduced_motion="reduce",
            timezone_id="UTC",
            permissions=["clipboard-read", "clipboard-write"],
            **{"viewport": {"width": 1280, "height": 900}, **settings},
        )
        complaints: list[str] = []

        def note(text: str) -> None:
            if not any(each in text for each in expects):
                complaints.append(text)

        def check_origin(request: Request) -> None:
            if not request.url.startswith((service, "blob:")):
                complaints.append(f"left the origin: {request.url}")

        # Chromium may send a request that follows the first `route` at once past the routes: a page
        # whose requests pass through them from the beginning has none of those.
        await context.route(NEVER_ASKED, Route.abort)
        page = await context.new_page()
        page.set_default_timeout(TIMEOUT_MS)
        expect.set_options(timeout=TIMEOUT_MS)  # it has one of its own
        page.on("console", lambda said: note(said.text) if said.type in _COMPLAINTS else None)
        page.on("pageerror", lambda error: note(str(error)))
        page.on("request", check_origin)
        try:
            await page.goto(f"{service}/console/{query}")
            yield page
            assert complaints == []
        finally:
            await context.close()

    return opened


async def accessibility_findings(page: Page, axe: str) -> list[Any]:
    """Return what axe finds, and whether the page scrolls sideways."""
    await page.evaluate(axe)  # Not a script of the page, to which its policy applies.
    found: list[Any] = await page.evaluate(
        "axe.run().then((r) => r.violations.map((v) => [v.id, v.nodes[0].html]))"
    )
    over = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
    return [*found, *([f"{over} pixels wider than the window"] if over > 0 else [])]
