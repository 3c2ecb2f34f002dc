"""The files of the console: what they are sent with, and that they need nothing from elsewhere."""

from __future__ import annotations

import re
from importlib.resources import files

import httpx
import pytest

from fencelog.api.web_console.files import MEDIA_TYPES, POLICY, load_files

pytestmark = pytest.mark.asyncio(loop_scope="package")

NAMES = sorted(load_files())


async def test_every_file_of_the_package_is_served() -> None:
    static = files("fencelog.api.web_console").joinpath("static")
    assert sorted(each.name for each in static.iterdir()) == NAMES


async def test_the_page_comes_with_its_policy(http: httpx.AsyncClient) -> None:
    page = await http.get("/console/?screen=topics")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert page.headers["content-security-policy"] == POLICY
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["cache-control"] == "no-cache"
    assert "unsafe" not in POLICY
    assert "require-trusted-types-for 'script'" in POLICY


@pytest.mark.parametrize("name", [name for name in NAMES if name != "index.html"])
async def test_a_file_is_sent_once(http: httpx.AsyncClient, name: str) -> None:
    first = await http.get(f"/console/{name}")
    assert first.status_code == 200
    assert first.headers["content-type"].encode() == MEDIA_TYPES[name.rpartition(".")[2]]
    assert first.headers["content-security-policy"] == POLICY
    etag = first.headers["etag"]
    again = await http.get(f"/console/{name}", headers={"If-None-Match": etag})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    head = await http.head(f"/console/{name}")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(first.content))


async def test_the_folder_has_one_address(http: httpx.AsyncClient) -> None:
    """Addresses within the page are relative, so that it works below any path of a proxy."""
    moved = await http.get("/console?screen=topics")
    assert (moved.status_code, moved.headers["location"]) == (308, "console/?screen=topics")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/console/nothing.js", 404),
        ("GET", "/console/../files.py", 404),
        ("GET", "/console/%2e%2e/files.py", 404),
        ("POST", "/console/", 405),
        ("DELETE", "/console/main.js", 405),
    ],
)
async def test_nothing_else_is_there(
    http: httpx.AsyncClient, method: str, path: str, status: int
) -> None:
    assert (await http.request(method, path)).status_code == status


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(".js")])
async def test_a_module_imports_only_its_neighbours(name: str) -> None:
    text = load_files()[name].body.decode()
    imported = re.findall(r"(?:from|import)\s+'([^']+)'", text)
    assert all(each.startswith("./") and each[2:] in NAMES for each in imported)
    without_names = text.replace("http://www.w3.org/", "")
    assert not re.search(r"https?://[a-z0-9]", without_names)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", text)


async def test_the_page_has_no_code_in_it() -> None:
    text = load_files()["index.html"].body.decode()
    assert re.findall(r"<script[^>]*>", text) == ['<script type="module" src="main.js">']
    assert not re.search(r"\son\w+=|style=|<style", text)
