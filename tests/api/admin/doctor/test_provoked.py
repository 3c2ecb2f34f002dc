"""No kind of finding is one that the doctor can only be told about: each has a test at a real
cluster that provokes it."""

from __future__ import annotations

from fencelog.api.admin.doctor.findings import FindingKind
from tests.api.admin.doctor import (
    test_certificates,
    test_damage,
    test_doctor,
    test_failed_checks,
    test_no_instance,
    test_paused,
)
from tests.api.admin.doctor.provoked import PROVOKED

MODULES = (
    test_certificates,
    test_damage,
    test_doctor,
    test_failed_checks,
    test_no_instance,
    test_paused,
)
"""The modules whose tests register with ``provokes`` when they are imported."""


def test_each_kind_of_finding_is_provoked_at_a_real_cluster() -> None:
    assert set(FindingKind) == PROVOKED.keys()
    names = {name for module in MODULES for name in vars(module)}
    assert {test for tests in PROVOKED.values() for test in tests} <= names
