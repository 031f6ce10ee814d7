"""How long a drain that a signal begins keeps idle connections."""

from __future__ import annotations

import pytest

from deadlined.http import REUSE_GRACE
from deadlined.service.stopping import REPLACED_GRACE, reuse_grace


@pytest.mark.parametrize(
    ("name", "reloads", "grace"),
    [
        ("SIGTERM", False, REUSE_GRACE),
        ("SIGINT", False, REUSE_GRACE),
        ("SIGHUP", False, REPLACED_GRACE),
        ("SIGTERM", True, 0.0),
        ("SIGHUP", True, 0.0),
    ],
)
def test_one_that_is_replaced_has_time_and_one_that_a_person_waits_for_has_none(
    name: str, reloads: bool, grace: float
) -> None:
    assert reuse_grace(name, reloads=reloads) == grace
    assert 0.0 < REUSE_GRACE < REPLACED_GRACE
