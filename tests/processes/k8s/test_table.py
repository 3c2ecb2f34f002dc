"""The judgement of a scenario: each promise that did not hold is named."""

from __future__ import annotations

from typing import Any

import pytest

from tests.processes.k8s.table import Limits, Result, broken_promises, table

UNNOTICED = Limits(gap_s=1.0, errors=False)


def clean(**changed: int) -> dict[str, Any]:
    counts = dict.fromkeys(("lost", "duplicated", "out_of_order", "foreign", "unknown"), 0)
    return {"acknowledged": 1000, **counts, **changed}


def window(
    gap_s: float = 0.2, errors: dict[str, int] | None = None, acknowledged: int = 50
) -> dict[str, Any]:
    gaps = [{"client": "http 2", "after_s": 12.0, "seconds": gap_s}]
    return {
        "seconds": 30.0,
        "acknowledged": acknowledged,
        "errors": errors or {},
        "gaps": [*gaps, {"client": "http 1", "after_s": 0.0, "seconds": 0.1}],
    }


def result(**given: Any) -> Result:
    return Result(
        **{"scenario": "x", "window": window(), "account": clean(), "whole_s": 3.0, **given}
    )


def test_nothing_is_broken() -> None:
    assert list(broken_promises(result(), UNNOTICED)) == []


@pytest.mark.parametrize("count", ["lost", "duplicated", "out_of_order", "foreign"])
def test_a_message_that_is_not_where_it_belongs_breaks_a_promise(count: str) -> None:
    found = list(broken_promises(result(account=clean(**{count: 2})), UNNOTICED))
    assert found == [f"2 messages {count.replace('_', ' ')}"]


def test_a_message_of_unknown_outcome_breaks_none() -> None:
    counts = clean(unknown=3, unknown_present=1)
    assert list(broken_promises(result(account=counts), UNNOTICED)) == []


def test_a_gap_over_the_limit_is_named_with_its_client_and_time() -> None:
    (found,) = broken_promises(result(window=window(gap_s=1.3)), UNNOTICED)
    assert found == "http 2 waited 1.3 s from 12 s on, 1 s are allowed"
    assert list(broken_promises(result(window=window(gap_s=1.3)), Limits(6.0, True))) == []


def test_errors_break_a_promise_where_none_are_allowed() -> None:
    seen = window(errors={"http: no_owner": 2, "client: append_unknown": 1})
    assert list(broken_promises(result(window=seen), UNNOTICED)) == ["3 errors"]
    assert list(broken_promises(result(window=seen), Limits(1.0, True))) == []


def test_a_load_that_was_not_served_proves_nothing() -> None:
    assert list(broken_promises(result(window=window(acknowledged=0)), UNNOTICED)) == [
        "nothing was acknowledged meanwhile"
    ]
    counts = clean() | {"acknowledged": 0}
    assert list(broken_promises(result(account=counts), UNNOTICED)) == ["nothing was acknowledged"]


def test_copies_have_to_be_there_also_without_a_load() -> None:
    assert list(broken_promises(Result("x"), None)) == ["copies are missing"]
    assert list(broken_promises(Result("x", whole_s=1.0), None)) == []


def test_the_table_has_a_row_for_each_scenario() -> None:
    results = [
        Result("first-apply", seconds=61.2, whole_s=2.0),
        result(window=window(errors={"http: no_owner": 2}), broken=["2 errors"], seconds=30.0),
        Result("cut-node", skipped="no command breaks nodes"),
    ]
    header, rule, first, second, third = table(results)
    assert header.count("|") == rule.count("|") == 11
    assert first == "| `first-apply` | 61 |  |  |  |  |  |  | 2 s | as promised |"
    assert second == ("| `x` | 30 | 50 | 2 http: no_owner | 0.20 s | 0 | 0 | 0 | 3 s | 2 errors |")
    assert third.endswith("| not run: no command breaks nodes |")
    (noted,) = list(table([result(notes=["the same image before and after"])]))[2:]
    assert noted.endswith("| as promised; the same image before and after |")
    assert {row.count("|") for row in (first, second, third)} == {11}
