"""The requests of browsers that are refused; those of other clients never are."""

from __future__ import annotations

import pytest

from fencelog.api.server import origins_core
from fencelog.api.server.origins_core import Origins, check_origin
from fencelog.ledgers.errors import ErrorCode, FencelogError

OWN = {b"host": b"localhost:8080"}
PAGE = b"https://console.example"
OTHERS = {b"sec-fetch-site": b"cross-site"}


def refused(origins: Origins, method: str = "POST", **given: str) -> ErrorCode | None:
    headers = {name.replace("_", "-").encode(): text.encode() for name, text in given.items()}
    refusal = origins.refusal(method.encode(), OWN | headers)
    return None if refusal is None else refusal.code


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "LOCALHOST:8080", "a.localhost:1", "127.0.0.1:8080", "[::1]:8080", "[::1]"),
        *("10.1.2.3:80", "host-4:8080", "host-4.", "x.svc", "a.b.svc:80", ""),
    ],
)
def test_names_of_its_own_are_known(host: str) -> None:
    assert refused(Origins(["Host-4", ".svc"]), host=host) is None


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example"),
        *("svc", "xsvc", "host-4.evil.example", "[evil.example]", "localhost, evil", "\x00"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_a_name_that_leads_here_without_being_known_is_refused(host: str, method: str) -> None:
    """A page that was rebound to this address reads as well as it writes."""
    origins = Origins(["host-4", ".svc"])
    for _ in range(2):
        assert refused(origins, method, host=host) is ErrorCode.UNKNOWN_HOST
    assert refused(Origins(["*"]), method, host=host) is None


def test_what_is_remembered_of_hosts_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origins_core, "MAX_REMEMBERED_HOSTS", 3)
    origins = Origins([".svc"])
    for number in range(20):
        assert refused(origins, host=f"{number}.svc") is None
        assert len(origins._known) <= 3  # its size is what is asked


def test_clients_that_are_no_browsers_are_asked_nothing() -> None:
    for method in ("GET", "POST", "DELETE"):
        assert refused(Origins(), method) is None
    assert Origins().refusal(b"POST", {}) is None


@pytest.mark.parametrize(
    "origin",
    [
        *("https://evil.example", "http://localhost:9999", "http://localhost", "null", ""),
        *("localhost:8080", "http://evil.example, http://localhost:8080"),
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "GET"])
def test_pages_of_other_origins_are_refused(origin: str, method: str) -> None:
    """A read can lease messages, or cost a lot."""
    assert refused(Origins(), method, origin=origin) is ErrorCode.CROSS_ORIGIN
    same = {"origin": origin, "sec_fetch_site": "same-origin"}
    assert refused(Origins(), method, **same) is ErrorCode.CROSS_ORIGIN


def test_its_own_pages_may_use_it() -> None:
    assert refused(Origins(), origin="http://localhost:8080", sec_fetch_site="same-origin") is None
    assert refused(Origins(), origin="https://LOCALHOST:8080") is None
    assert refused(Origins(), sec_fetch_site="same-origin") is None
    assert refused(Origins(), sec_fetch_site="none") is None
    assert Origins().refusal(b"POST", {b"origin": b"http://"}) is not None


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_browser_that_names_no_page_is_refused_but_for_links(site: str) -> None:
    assert refused(Origins(), sec_fetch_site=site) is ErrorCode.CROSS_ORIGIN
    assert refused(Origins(), "GET", sec_fetch_site=site, sec_fetch_mode="no-cors") is not None
    link = {"sec_fetch_site": site, "sec_fetch_mode": "navigate"}
    assert refused(Origins(), "GET", **link) is None
    assert refused(Origins(), "POST", **link) is ErrorCode.CROSS_ORIGIN


@pytest.mark.parametrize("site", [b"cross-site", b"same-site"])
def test_a_link_of_another_page_takes_nothing(site: bytes) -> None:
    """A frame or a window follows links without anyone who clicks."""
    with pytest.raises(FencelogError) as raised:
        Origins(allowed=[PAGE.decode()]).check_navigation(site, b"navigate")
    assert raised.value.code is ErrorCode.CROSS_ORIGIN
    Origins(allowed=["*"]).check_navigation(site, b"navigate")
    Origins().check_navigation(site, b"cors")  # its Origin is checked


def test_links_of_its_own_pages_and_of_people_take_what_they_ask_for() -> None:
    for site in (b"same-origin", b"none", None):
        Origins().check_navigation(site, b"navigate")
    Origins().check_navigation(None, None)


@pytest.mark.parametrize("allowed", [["https://Console.example/", "https://b"], ["*"]])
def test_allowed_pages_see_the_answers(allowed: list[str]) -> None:
    origins = Origins(allowed=allowed)
    assert refused(origins, origin=PAGE.decode(), sec_fetch_site="cross-site") is None
    told = dict(origins.answer_headers(PAGE))
    assert told[b"access-control-allow-origin"] == PAGE
    assert told[b"access-control-expose-headers"] == b"*"
    assert told[b"vary"] == b"origin"
    assert origins.answer_headers(None) == []
    assert Origins(allowed=["https://other"]).answer_headers(PAGE) == []


def test_a_preflight_is_told_what_may_be_done() -> None:
    asked = [(b"origin", PAGE), (b"access-control-request-method", b"PUT")]
    origins = Origins(allowed=[PAGE.decode()])
    brief = dict(origins.preflight(asked))
    assert brief == {
        b"access-control-allow-methods": b"PUT",
        b"access-control-max-age": b"600",
    }
    more = [
        *asked,
        (b"access-control-request-headers", b"producer-id"),
        (b"access-control-request-private-network", b"true"),
    ]
    assert dict(origins.preflight(more)) == brief | {
        b"access-control-allow-headers": b"producer-id",
        b"access-control-allow-private-network": b"true",
    }
    for other in (asked[:1], asked[1:], [(b"origin", b"https://evil"), asked[1]]):
        assert origins.preflight(other) == []


@pytest.mark.parametrize("origin", ["*", "null", "https://a.example", "http://a:8080"])
def test_an_origin_is_scheme_and_name(origin: str) -> None:
    assert check_origin(origin) == origin


@pytest.mark.parametrize("origin", ["a.example", "https://a.example/", "https://a/b", "", "https:"])
def test_anything_else_is_refused(origin: str) -> None:
    with pytest.raises(FencelogError, match="is no origin, for example") as caught:
        check_origin(origin)
    assert caught.value.code is ErrorCode.BAD_REQUEST
