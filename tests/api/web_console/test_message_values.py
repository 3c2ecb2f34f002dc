"""One message: the forms in which its value is shown, and the commands that read it, which are run;
and a tail that is followed no more."""

from __future__ import annotations

import asyncio
import base64
import shlex
import subprocess
import sys
from functools import partial

import anyio
import httpx
import pytest
from playwright.async_api import expect

from tests.api.web_console.conftest import OpenPage
from tests.support.fencelog_cli import fencelog

pytestmark = pytest.mark.asyncio(loop_scope="package")

VALUE = "it's \u201c5 \u20ac\u201d; $HOME `x`"
STILL_S = 1.0
"""What is followed is on the page after a few milliseconds."""


@pytest.mark.parametrize("how", ["curl", "Python", "command line"])
async def test_what_is_copied_reads_the_message(
    open_page: OpenPage, http: httpx.AsyncClient, how: str
) -> None:
    topic = "/v1/topics/copied/orders"
    (await http.put(topic)).raise_for_status()
    body = {"messages": [{"text": text, "key": "k1"} for text in ("before", VALUE, "after")]}
    appended = await http.post(f"{topic}/messages:batch", json=body)
    offset = appended.raise_for_status().json()["appended"][0]["offset"] + 1
    query = f"?screen=messages&topic=copied/orders&partition=0&from={offset}&message={offset}"
    async with open_page(query) as page:
        await page.get_by_role("button", name=f"Copy as {how}").press("Enter")
        await expect(page.get_by_text("Copied.")).to_be_visible()
        copied = await page.evaluate("navigator.clipboard.readText()")
    run = {"curl": run_curl, "Python": run_python, "command line": run_fencelog}[how]
    assert VALUE in (await anyio.to_thread.run_sync(run, copied)).splitlines()[-1]


def run_curl(copied: str) -> str:
    """Run it as a shell does."""
    done = subprocess.run(["bash", "-c", copied], check=True, capture_output=True)
    said = done.stdout.decode()
    assert "200" in said.splitlines()[0]
    return said


def run_python(copied: str) -> str:
    code = f"{copied}\nassert key == 'k1', key\nimport sys\nsys.stdout.buffer.write(value)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    return done.stdout.decode()


def run_fencelog(copied: str) -> str:
    program, *words = shlex.split(copied)
    assert program == "fencelog"
    done = fencelog(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


async def test_a_value_is_shown_in_every_form(open_page: OpenPage, http: httpx.AsyncClient) -> None:
    """What it is not, it is not shown as."""
    topic = "/v1/topics/shown/values"
    (await http.put(topic)).raise_for_status()
    packed = base64.b64encode(b"\x81\xa1n\x01").decode()
    body = {"messages": [{"text": '{"n":1}'}, {"text": "plain"}, {"base64": packed}]}
    (await http.post(f"{topic}/messages:batch", json=body)).raise_for_status()
    async with open_page("?screen=messages&topic=shown/values&partition=0") as page:
        rows = page.locator(".row")
        await expect(rows).to_have_count(3)
        pretty = '{\n  "n": 1\n}'
        for row, shown in (
            (0, {"auto": pretty, "json": pretty, "text": '{"n":1}', "hex": "7b 22 6e 22 3a 31 7d"}),
            (1, {"auto": "plain", "json": "plain", "text": "plain", "hex": "70 6c 61 69 6e"}),
            (2, {"auto": pretty, "msgpack": pretty, "json": "81 a1 6e 01", "hex": "81 a1 6e 01"}),
        ):
            await rows.nth(row).click()
            for form, text in shown.items():
                await page.get_by_label("Shown as").select_option(form)
                await expect(page.locator("pre")).to_contain_text(text)
        assert "as=hex" in page.url
        await page.reload()
        await expect(page.locator("pre")).to_contain_text("81 a1 6e 01")


async def test_what_comes_while_the_tail_is_not_followed_is_not_shown(
    open_page: OpenPage, http: httpx.AsyncClient
) -> None:
    topic = "/v1/topics/shown/paused"
    (await http.put(topic)).raise_for_status()
    append = partial(http.post, f"{topic}/messages")
    (await append(content="first")).raise_for_status()
    async with open_page("?screen=messages&topic=shown/paused&partition=0&live=1") as page:
        values = page.locator(".row .value")
        await expect(values).to_have_text(["first"])
        (await append(content="second")).raise_for_status()
        await expect(values).to_have_text(["first", "second"])
        await page.get_by_role("button", name="Pause").press("Enter")
        await expect(page.get_by_role("button", name="Follow the tail")).to_be_visible()
        (await append(content="third")).raise_for_status()
        await asyncio.sleep(STILL_S)
        await expect(values).to_have_text(["first", "second"])
        await page.get_by_role("button", name="Follow the tail").press("Enter")
        await expect(values).to_have_text(["first", "second", "third"])
