"""The longest gap of a client, and everything that ends it."""

from __future__ import annotations

import pytest

from tests.processes.k8s.window import Window


def gaps(window: Window, now: float) -> dict[str, tuple[float, float]]:
    return {gap["client"]: (gap["after_s"], gap["seconds"]) for gap in window.report(now)["gaps"]}


def test_a_gap_lies_between_two_acknowledgements_of_one_client() -> None:
    window = Window(100.0, ["a", "b"])
    for now in (101.0, 105.0, 106.0):
        window.on_acknowledged("a", now)
    for now in (102.0, 104.0, 106.0):
        window.on_acknowledged("b", now)
    assert gaps(window, 106.5) == {"a": (1.0, 4.0), "b": (0.0, 2.0)}


def test_a_client_that_is_never_served_has_a_gap_as_long_as_the_window() -> None:
    window = Window(10.0, ["a", "b"])
    window.on_acknowledged("a", 11.0)
    assert gaps(window, 70.0) == {"b": (0.0, 60.0), "a": (1.0, 59.0)}


def test_the_gap_at_the_end_counts() -> None:
    window = Window(0.0, ["a"])
    window.on_acknowledged("a", 1.0)
    window.on_error("a", "no_owner")
    assert gaps(window, 9.0) == {"a": (1.0, 8.0)}


def test_an_error_ends_no_gap() -> None:
    window = Window(0.0, ["a"])
    for now in (1.0, 2.0, 3.0):
        window.on_error("a", "no_owner")
        assert now
    window.on_acknowledged("a", 4.0)
    assert gaps(window, 4.5) == {"a": (0.0, 4.0)}


def test_the_longest_gap_is_the_first_of_the_report() -> None:
    window = Window(0.0, ["http 1", "client 1", "http 2"])
    window.on_acknowledged("http 1", 3.0)
    window.on_acknowledged("client 1", 7.0)
    window.on_acknowledged("http 2", 5.0)
    assert [gap["client"] for gap in window.report(7.0)["gaps"]] == ["client 1", "http 2", "http 1"]


def test_errors_are_counted_by_kind_of_client_and_code() -> None:
    window = Window(0.0, ["http 1", "http 2", "client 1"])
    window.on_error("http 1", "no_owner")
    window.on_error("http 2", "no_owner")
    window.on_error("client 1", "append_unknown")
    assert window.report(1.0)["errors"] == {"client: append_unknown": 1, "http: no_owner": 2}
    assert window.report(1.0)["acknowledged"] == 0


def test_a_client_that_is_not_of_the_load_is_refused() -> None:
    with pytest.raises(KeyError):
        Window(0.0, ["a"]).on_acknowledged("b", 1.0)
