"""Frameworks that know one event loop only, on the other: the log says which one they need."""

from __future__ import annotations

import httpx
import pytest

from tests.applications.running import unchecked

WRONG = [
    ("django_site:app", "trio", "asyncio", ()),
    ("django_site:channels_app", "trio", "asyncio", ()),
    ("quart_site:for_asyncio", "trio", "asyncio", ("--factory",)),
    ("quart_site:for_trio", "asyncio", "trio", ("--factory",)),
    ("quart_site:for_trio", "uvloop", "trio", ("--factory",)),
]


@pytest.mark.parametrize(("site", "loop", "needed", "options"), WRONG, ids=str)
def test_the_log_names_the_loop_that_is_needed_once(
    site: str, loop: str, needed: str, options: tuple[str, ...]
) -> None:
    with unchecked(site, loop, *options) as server:
        with httpx.Client(base_url=server.url, trust_env=False, timeout=30) as client:
            assert [client.get("/hello/you").status_code for _ in range(3)] == [500] * 3
        assert server.end() == 0
    hints = [line for line in server.log() if "this application needs" in line["event"]]
    assert [hint["event"] for hint in hints] == [f"this application needs {needed}: serve it with --loop {needed}"]
    # no line of the site itself makes the call
    assert f"{needed}." in hints[0]["call"]
    assert "/site-packages/" in hints[0]["file"]
