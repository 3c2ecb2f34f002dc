"""Complaints in plain words."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from fencelog.api.admin.settings import TopicSettings
from fencelog.api.server.invalid_core import complaints
from fencelog.api.subscriptions.models import SubscriptionSettings

STARTS = 'must be "earliest", "latest", {"offset": N} or {"time": µs}'


def why(model: type[BaseModel], sent: Any) -> list[tuple[str, str]]:
    with pytest.raises(ValidationError) as caught:
        model.model_validate(sent)
    errors = [error | {"loc": ("body", *error["loc"])} for error in caught.value.errors()]
    return [(each["field"], each["why"]) for each in complaints(errors, sent)]


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        ({"retention_ms": 0}, ("retention_ms", "must be at least 1 or 'unlimited', not 0")),
        (
            {"retention_ms": "x" * 99},
            ("retention_ms", f"must be a whole number or 'unlimited', not \"{'x' * 39}…"),
        ),
        ({"partitions": "4"}, ("partitions", 'must be a whole number, not "4"')),
        ({"ensemble_size": 10**6}, ("ensemble_size", "must be at most 32, not 1000000")),
        ({"trim_unacknowledged": 1}, ("trim_unacknowledged", "must be true or false, not 1")),
        (
            {"backlog_action": None, "partition": 1},
            ("partition", "is not known here"),
        ),
        (
            {"backlog_action": "x"},
            ("backlog_action", "must be 'hold', 'refuse' or 'evict', not \"x\""),
        ),
        ([], ("body", "must be an object, not []")),
    ],
)
def test_a_setting_is_told_with_what_it_may_be(sent: Any, reason: tuple[str, str]) -> None:
    assert why(TopicSettings, sent) == [reason]


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        ("first", ("start", "must be 'earliest' or 'latest', not \"first\"")),
        ({"offset": -1}, ("start.offset", "must be at least 0, not -1")),
        ({"time": "x"}, ("start.time", 'must be a whole number, not "x"')),
        ({"time": 1, "offset": 2}, ("start.time", "is not known here")),
        (7, ("start", STARTS)),
        ({"at": 7}, ("start", STARTS)),
    ],
)
def test_only_the_form_that_was_given_is_complained_of(start: Any, reason: tuple[str, str]) -> None:
    assert why(SubscriptionSettings, {"start": start}) == [reason]


def test_a_member_that_is_missing_has_its_name() -> None:
    class Inner(BaseModel):
        inner: int

    class Outer(BaseModel):
        outer: Inner | Literal["none"]

    assert why(Outer, {"outer": {}}) == [
        ("outer.inner", "is missing"),
        ("outer", "must be 'none', not {}"),
    ]


def test_parameters_have_their_names() -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(int).validate_python("x")
    errors = [error | {"loc": ("query", "limit")} for error in caught.value.errors()]
    assert complaints(errors, None) == [
        {"field": "limit", "why": 'must be a whole number, not "x"'}
    ]


def test_json_that_is_none_is_told_as_the_parser_tells_it() -> None:
    error = {"type": "json_invalid", "loc": ("body", 3), "msg": "", "ctx": {"error": "eof"}}
    assert complaints([error], {}) == [{"field": "body", "why": "is no JSON: eof"}]


def test_any_other_complaint_is_passed_on_as_it_is() -> None:
    error = {"type": "odd", "loc": ("body", "a"), "msg": "is odd", "input": 1}
    assert complaints([error], {"a": 1}) == [{"field": "a", "why": "is odd"}]
