"""`python -m loadtest check`: verdicts, grades, advice, and the forms of a report. Pure."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from rich.console import Console

from deadlined.cli import serve_command
from deadlined.http import Reason
from deadlined.http.wire.response import canned

pytest.importorskip("hdrh", reason="the load test's extra is not installed: pip install .[bench]")

from loadtest.check.attacks import _OPTIONS, ATTACKS, CROWDED, NAMES, Attack, advice, crowded, known
from loadtest.check.grade import GRADES, RULES, Honest, Outcome, Report, Verdict, below, grade, verdict
from loadtest.check.kinds import Deadline, Kind
from loadtest.check.shown import junit, kind_text, page, seconds_text, show

CALM = Honest(50, 0, 4.0)


def attack(name: str) -> Attack:
    return ATTACKS[NAMES.index(name)]


def judged(
    name: str, kind: Kind = "absolute", seconds: float | None = 1.0, honest: Honest | None = CALM, limit: float = 60.0
) -> Verdict:
    deadline = Deadline(kind, seconds, connections=4, watched=seconds or limit)
    return verdict(attack(name), deadline, honest, CALM, limit)[0]


@pytest.mark.parametrize(
    ("name", "kind", "seconds", "expected"),
    [
        ("slow-header", "absolute", 60.0, "pass"),
        ("slow-header", "absolute", 60.64, "pass"),
        ("slow-header", "absolute", 60.66, "weak"),
        ("half-close", "absolute", 5.09, "pass"),
        ("half-close", "absolute", 5.11, "weak"),
        ("slow-header", "absolute", 301.0, "fail"),
        ("slow-header", "min-rate", 20.0, "pass"),
        ("slow-header", "idle", 0.5, "fail"),
        ("slow-body", "idle", 0.5, "fail"),
        ("endless-header", "idle", 0.5, "fail"),
        ("stalled-body", "idle", 60.0, "pass"),
        ("silent", "idle", 5.0, "pass"),
        ("idle", "idle", 180.0, "pass"),
        ("idle", "none", None, "fail"),
        ("half-close", "absolute", 30.0, "fail"),
        ("connection-flood", "none", None, "pass"),
    ],
)
def test_what_ends_an_attack_and_when(name: str, kind: Kind, seconds: float | None, expected: Verdict) -> None:
    assert judged(name, kind, seconds) == expected


@pytest.mark.parametrize(
    ("honest", "expected"),
    [
        (Honest(100, 0, 20.0), "pass"),
        (Honest(99, 1, 250.0), "pass"),
        (Honest(99, 1, 251.0), "weak"),
        (Honest(90, 10, 20.0), "weak"),
        (Honest(89, 11, 20.0), "fail"),
        (Honest(0, 100, None), "fail"),
        (None, "pass"),
    ],
)
def test_what_honest_clients_feel(honest: Honest | None, expected: Verdict) -> None:
    assert judged("silent", honest=honest) == expected
    if honest is not None:
        assert judged("connection-flood", "none", None, honest=honest) == expected


def test_what_no_honest_client_has_felt_is_judged_by_its_end_alone() -> None:
    assert judged("silent", honest=Honest(0, 0, None)) == "pass"


def test_a_slow_service_may_be_as_slow_under_attack() -> None:
    for p99, expected in ((1000.0, "pass"), (1001.0, "weak")):
        felt = Honest(100, 0, p99)
        assert verdict(attack("silent"), Deadline("absolute", 1.0), felt, Honest(50, 0, 200.0), 60.0)[0] == expected


@pytest.mark.parametrize(
    ("name", "kind", "seconds", "limit", "expected"),
    [
        ("idle", "none", None, 40.0, "open after 40 s, and 180 s are allowed: --limit 182 would tell"),
        ("idle", "none", None, 182.0, "the connection was held for 182 s, and would be longer"),
        ("slow-body", "idle", 5.0, 40.0, "the server ends it if it stalls, and not in 40 s if it drips"),
        ("slow-body", "idle", 5.0, 122.0, "the server ends it if it stalls, and never if it drips"),
        ("half-close", "none", None, 6.0, "the connection was held for 6 s, and would be longer"),
    ],
)
def test_what_a_limit_is_too_short_for_is_said(
    name: str, kind: Kind, seconds: float | None, limit: float, expected: str
) -> None:
    deadline = Deadline(kind, seconds, connections=4, watched=limit)
    assert verdict(attack(name), deadline, None, CALM, limit) == ("fail", expected)


def test_what_was_not_watched_to_the_limit_is_unfinished_and_has_no_grade() -> None:
    deadline = Deadline("none", None, connections=4, watched=20.0)
    judgement = verdict(attack("silent"), deadline, None, CALM, 60.0)
    assert judgement == ("unfinished", "watched for 20.0 s only")
    assert grade([Outcome(attack("silent"), deadline, *judgement)]) == "-"


def outcomes(passes: int = 0, weak: int = 0, fails: int = 0, honest: Honest = CALM) -> list[Outcome]:
    counts: dict[Verdict, int] = {"pass": passes, "weak": weak, "fail": fails}
    deadline = Deadline("absolute", 1.0, connections=4, close="fin")
    return [
        Outcome(attack("silent"), deadline, one, "because", honest, 256)
        for one, number in counts.items()
        for _ in range(number)
    ]


@pytest.mark.parametrize(
    ("passes", "weak", "fails", "expected"),
    [
        (10, 0, 0, "A"),
        (8, 2, 0, "B"),
        (7, 3, 0, "C"),
        (9, 0, 1, "C"),
        (7, 2, 1, "C"),
        (6, 3, 1, "D"),
        (8, 0, 2, "D"),
        (7, 0, 3, "E"),
        (5, 0, 5, "E"),
        (4, 0, 6, "F"),
        (0, 0, 1, "F"),
        (0, 0, 0, "-"),
    ],
)
def test_the_rules_of_the_grades(passes: int, weak: int, fails: int, expected: str) -> None:
    assert grade(outcomes(passes, weak, fails)) == expected


def test_a_server_that_half_of_the_honest_clients_lose_fails() -> None:
    assert grade([*outcomes(9), *outcomes(fails=1, honest=Honest(10, 11, 5.0))]) == "F"


def test_a_server_that_is_gone_fails_whatever_else() -> None:
    assert grade(outcomes(9), gone=True) == "F"


def test_a_flood_that_no_honest_client_felt_is_unfinished() -> None:
    assert judged("connection-flood", "none", None, honest=None) == "unfinished"


def test_what_does_not_apply_does_not_count() -> None:
    absent = replace(outcomes(1)[0], verdict="not applicable")
    assert grade([absent, *outcomes(1)]) == "A"
    assert grade([absent]) == "-"


def test_each_grade_is_below_those_before_it() -> None:
    for better, worse in pairwise(GRADES):
        assert below(worse, better)
        assert not below(better, worse)
        assert not below(better, better)
    assert below("-", "F")


def test_the_rules_name_every_grade_and_every_time() -> None:
    assert "and 1% of it and 0.05 s" in RULES
    assert all(f"\n  {letter}  " in RULES for letter in GRADES)
    assert all(f"{one.name} {one.within:g} s" in RULES for one in ATTACKS if one.enough)


@pytest.mark.parametrize(
    ("server", "fields", "expected"),
    [
        ("uvicorn", {}, "uvicorn"),
        ("hypercorn-h11", {}, "hypercorn"),
        ("anycorn-h11", {}, "anycorn"),
        ("nginx/1.22.1", {}, "nginx"),
        ("Apache/2.4 (Debian)", {}, "apache"),
        ("", {"keep-alive": "timeout=5", "connection": "keep-alive"}, ""),
        ("Python/3.11 aiohttp/3.9", {}, ""),
    ],
)
def test_servers_are_known_by_their_responses(server: str, fields: dict[str, str], expected: str) -> None:
    assert known({**fields, "server": server} if server else fields) == expected


def test_advice_names_the_option_or_says_that_there_is_none() -> None:
    assert advice("uvicorn", attack("slow-header")).startswith(
        "uvicorn has no such option; put `deadlined run` in front"
    )
    assert "--timeout-keep-alive" in advice("uvicorn", attack("idle"))
    assert advice("deadlined", attack("slow-body")) == "deadlined: --body-grace, --body-min-rate, --read"
    assert "a time for the whole head" in advice("", attack("slow-header"))
    assert crowded("uvicorn", attack("idle")) == crowded("", attack("connection-flood")) == CROWDED
    assert crowded("nginx", attack("connection-flood")) == f"{CROWDED}; nginx: limit_conn, limit_req"


@pytest.mark.parametrize("name", [one.name for one in ATTACKS if one.enough is not None])
def test_ours_has_an_option_that_there_is_or_a_defect(name: str) -> None:
    options = {option for parameter in serve_command.params for option in parameter.opts}
    told = advice("deadlined", attack(name))
    named = set(re.findall(r"--[a-z-]+", told))
    assert named <= options
    if name == "half-close":
        assert "it is a defect" in told
    else:
        assert named


@pytest.mark.parametrize(
    ("server", "name", "part"),
    [
        ("uvicorn", "pipelined", "uvicorn: --timeout-keep-alive"),
        ("hypercorn-h11", "slow-header", "hypercorn: keep_alive_timeout"),
        ("anycorn-h11", "stalled-body", "anycorn: --read-timeout"),
        ("granian", "slow-header", "granian: --http1-header-read-timeout (milliseconds)"),
        ("granian", "slow-body", "granian has no such option"),
        ("daphne", "websocket-silent", "daphne: --ping-interval, --ping-timeout"),
        ("daphne", "silent", "daphne has no such option: it waits 60 seconds"),
        ("FastPySGI/0.6", "idle", "fastpysgi: fastpysgi.server.next_req_timeout"),
        ("FastPySGI/0.6", "slow-read", "fastpysgi has no such option; put `deadlined run` in front"),
    ],
)
def test_each_server_has_advice_of_its_own(server: str, name: str, part: str) -> None:
    assert part in advice(known({"server": server}), attack(name))


def test_a_proxy_that_does_not_name_itself_is_known_by_its_refusal() -> None:
    refused = (
        b"HTTP/1.1 400 Bad request\r\n\r\n<html><body><h1>400 Bad request</h1>\nYour browser sent an invalid request.\n"
    )
    uvicorn = {"server": "uvicorn"}
    assert known(uvicorn, refused) == "haproxy"
    assert known(uvicorn, b"HTTP/1.1 400 Bad Request\r\n\r\nInvalid HTTP request received.") == "uvicorn"
    assert advice("haproxy", attack("slow-header")) == "haproxy: timeout http-request"
    assert known(uvicorn, canned(400, Reason.PROTOCOL_ERROR, "this is not an HTTP request")) == "deadlined"


def test_advice_names_attacks_that_there_are() -> None:
    assert {name for options in _OPTIONS.values() for name in options} - {""} <= set(NAMES)


def a_report() -> Report:
    deadline = Deadline(
        "min-rate", 20.0123456, 0.002, 0.0004, (500.0, 500.0), close="response", status=408, connections=4
    )
    found = (
        Outcome(attack("slow-body"), deadline, "pass", "ended after 20.01 s", CALM, 256),
        Outcome(attack("silent"), Deadline(watched=60.0, connections=4), "fail", "held <for> 60 s",
                Honest(0, 9, None), 256, "put [a guard] in front"),
        Outcome(attack("tls-silent"), Deadline(), "not applicable", "the URL is not https"),
        Outcome(attack("connection-flood"), Deadline(), "weak", "slow", Honest(90, 10, 900.0), 256),
    )  # fmt: skip
    return Report("http://127.0.0.1:1/?a=<b>", "nginx", "E", 60.0, found, CALM, 75.3, "2030-01-01T00:00:00+00:00")


def test_the_json_has_the_pinned_names() -> None:
    written = json.loads(json.dumps(a_report().as_json()))
    assert (written["target"], written["grade"]) == ("http://127.0.0.1:1/?a=<b>", "E")
    first, second, absent, _ = written["attacks"]
    pinned = {name: first[name] for name in ("name", "kind", "seconds", "close", "status", "honest")}
    assert pinned == {
        "name": "slow-body",
        "kind": "min-rate",
        "seconds": 20.0123,
        "close": "response",
        "status": 408,
        "honest": {"ok": 50, "failed": 0, "p99_ms": 4.0},
    }
    assert (second["kind"], second["seconds"], second["close"], second["status"]) == ("none", None, "none", None)
    assert (absent["verdict"], absent["honest"]) == ("not applicable", {"ok": 0, "failed": 0, "p99_ms": None})


class Reader(HTMLParser):
    """Reads a page, and refuses what is not closed, or would load anything."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "img", "iframe")
        assert not {"src", "href", "onclick"} & {name for name, _ in attrs}
        self.tags.append(tag)
        if tag != "meta" and not (self.get_starttag_text() or "").endswith("/>"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.open and self.open[-1] == tag:
            self.open.pop()


def test_the_page_is_whole_and_loads_nothing() -> None:
    text = page(a_report())
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    assert reader.tags.count("svg") == 2
    assert reader.tags.count("rect") == 2 + 3
    assert "held &lt;for&gt; 60 s" in text
    assert "url(" not in text
    assert "@import" not in text


def test_junit_counts_failures_and_what_was_skipped() -> None:
    suite = ElementTree.fromstring(junit(a_report()).encode())
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "1", "1")
    failure = suite.find("testcase[@name='silent']/failure")
    assert failure is not None
    assert (failure.get("message"), failure.text) == ("held <for> 60 s", "put [a guard] in front")
    assert suite.find("properties/property[@name='grade']").get("value") == "E"  # type: ignore[union-attr]


def test_junit_fits_the_strict_schema_of_ant_too() -> None:
    suite = ElementTree.fromstring(junit(a_report()).encode())
    assert set(suite.keys()) >= {"name", "timestamp", "hostname", "tests", "failures", "errors", "time"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.get("timestamp", ""))
    cases = len(suite.findall("testcase"))
    assert [one.tag for one in suite] == ["properties", *["testcase"] * cases, "system-out", "system-err"]
    assert {one.tag for one in suite.findall("testcase/*")} <= {"skipped", "failure"}
    said = suite.findtext("system-out")
    assert said is not None
    assert "slow-body: " in said


def test_the_table_shows_all_and_keeps_brackets() -> None:
    out = io.StringIO()
    show(Console(width=200, file=out), a_report())
    text = out.getvalue()
    assert all(name in text for name in ("slow-body", "silent", "min-rate 500 B/s", "20.012 s", "408", "> 60 s"))
    assert "put [a guard] in front" in text
    assert "Grade: E" in text
    assert "none, 9 failed" in text


@pytest.mark.parametrize("width", [60, 80, 109, 110])
def test_a_narrow_table_loses_no_word(width: int) -> None:
    out = io.StringIO()
    show(Console(width=width, file=out), a_report())
    text = out.getvalue()
    assert "…" not in text
    assert "not applicable" in text
    assert ("tls-silent: the URL is not https\n" in text) is (width < 110)


def test_what_was_not_measured_has_no_time() -> None:
    outcome = Outcome(attack("silent"), Deadline(), "fail", "not measured: refused")
    assert seconds_text(outcome) == ""


def test_rates_between_two_bounds_and_spreads_are_shown() -> None:
    outcome = outcomes(1)[0]
    bounds = replace(outcome, deadline=Deadline("min-rate", 5.0, 0.02, min_rate=(200.0, 300.0)))
    assert kind_text(bounds) == "min-rate 200 to 300 B/s"
    assert seconds_text(bounds) == "5.000 s ± 10 ms"


@pytest.mark.parametrize(
    ("watched", "text"), [(60.0003, "> 60 s"), (2.97, "> 2.9 s"), (29.96, "> 29.9 s"), (0.04, "> 0 s")]
)
def test_no_longer_watch_is_shown_than_there_was(watched: float, text: str) -> None:
    assert seconds_text(Outcome(attack("silent"), Deadline(watched=watched, connections=4), "fail", "held")) == text


@pytest.mark.parametrize("interrupted", [False, True])
def test_an_interrupted_report_does_not_say_that_there_is_nothing_to_change(interrupted: bool) -> None:
    text = page(replace(a_report(), outcomes=tuple(outcomes(1)), interrupted=interrupted))
    assert ("<li>nothing</li>" in text) is not interrupted
    assert ("the check was not finished" in text) is interrupted
    assert ("watched for 60 s" in text) is not interrupted
    assert ("watched for at most 60 s" in text) is interrupted


def printed(report: Report) -> str:
    out = io.StringIO()
    show(Console(width=200, file=out), report)
    return out.getvalue()


def limited(limit: float, honest: Honest | None = CALM, gone: str = "", *, interrupted: bool = False) -> Report:
    """Return the report of a server that ends all but idle connections."""
    held = Outcome(attack("idle"), Deadline(connections=4, watched=limit), "fail", "because", honest)
    grades = (*outcomes(9), held)
    return Report("url", "server", grade(grades), limit, grades, CALM, 1.0, "now", interrupted, gone=gone)


def test_the_grade_that_a_higher_limit_may_give_is_said() -> None:
    report = limited(40.0)
    told = "A --limit of 40 s is too short for idle: what it does not show counts as a failure."
    told += " With --limit 182 the grade may be up to A."
    assert (report.grade, report.undecided(), report.as_json()["undecided"]) == ("C", told, told)
    assert told in page(report)
    assert told in " ".join(printed(report).split())


@pytest.mark.parametrize(
    "report",
    [
        limited(182.0),
        limited(40.0, Honest(1, 1, 1.0)),
        limited(40.0, gone="it is gone"),
        limited(40.0, interrupted=True),
    ],
    ids=range(4),
)
def test_a_limit_that_was_no_matter_is_not_mentioned(report: Report) -> None:
    assert report.undecided() == ""
    assert "too short" not in page(report) + printed(report)


def test_the_page_does_not_draw_an_idle_timeout_as_the_end_of_what_drips() -> None:
    stalled = Deadline("idle", 2.0, connections=4, close="fin", watched=60.0)
    for name, text in (("slow-header", "not if it drips"), ("stalled-body", "2.000 s</text>")):
        found = (Outcome(attack(name), stalled, *verdict(attack(name), stalled, CALM, CALM, 60.0)),)
        assert text in page(replace(a_report(), outcomes=found))
