"""A log without the queries of URLs."""

from __future__ import annotations

import dataclasses
import json
import logging
import logging.config
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import deadlined
from deadlined.service.log.json_lines import JsonLines
from deadlined.service.log.queries import _FILTER, _LOGGERS, WithoutQueries, leave_out_queries
from deadlined.service.log.style import Style
from deadlined.service.log.text_lines import TextLines
from tests.service.log.test_access import REQUEST


@pytest.fixture
def _left_out() -> Iterator[None]:
    leave_out_queries()
    yield
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.removeFilter(_FILTER)
        logger.disabled = False


@pytest.mark.parametrize(
    ("target", "shown"),
    [("/a?b", "/a"), ("/a?", "/a"), ("/a?b?c", "/a"), ("http://x/a?b", "http://x/a"), ("/a%3Fb", "/a%3Fb"), ("*", "*")],
)
def test_the_line_of_a_request_has_its_path_only(target: str, shown: str) -> None:
    record = dataclasses.replace(REQUEST, target=target)
    assert json.loads(WithoutQueries(JsonLines()).request(0.0, record))["path"] == shown
    assert WithoutQueries(TextLines(Style(colour=False))).request(0.0, record).split()[3] == shown


def test_urls_in_header_fields_lose_their_queries() -> None:
    given = {"referer": "https://x/a?b#c", "x-original-uri": "/a?b", "user-agent": "bot (+http://x/?y) why?"}
    record = dataclasses.replace(REQUEST, fields=tuple(given.items()))
    shown = json.loads(WithoutQueries(JsonLines()).request(0.0, record))["fields"]
    assert shown == {"referer": "https://x/a", "x-original-uri": "/a", "user-agent": "bot (+http://x/ why?"}


@pytest.mark.usefixtures("_left_out")
@pytest.mark.parametrize("name", _LOGGERS)
def test_the_servers_loggers_name_requests_without_queries(name: str, caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger(name)
    # as an application may do
    logging.config.dictConfig({"version": 1, "disable_existing_loggers": False})
    logger.warning("%s: cancelled %s", "GET /a?token=1", "why?")
    logger.warning("%s failed", "POST http://x/?token=1:2")
    logger.warning("it is late? %d", 3)
    logger.warning("shut down: %s", "what is this? a text?")
    assert caplog.messages == [
        "GET /a: cancelled why?",
        "POST http://x/ failed",
        "it is late? 3",
        "shut down: what is this? a text?",
    ]


def test_every_logger_that_names_requests_is_known() -> None:
    package = Path(deadlined.__file__).parent
    naming = [path for path in package.rglob("*.py") if re.search(r"request\.line\b", path.read_text())]
    assert {f"deadlined.{path.relative_to(package).parts[0]}" for path in naming} == {*_LOGGERS}
