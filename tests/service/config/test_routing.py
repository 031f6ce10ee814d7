"""The tables `[[route]]` of the file."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from deadlined.http import Limits, Route, Timeouts
from deadlined.http.routes import Routes
from deadlined.service.config import ConfigurationError, Sources, resolve
from deadlined.service.config.showing import as_dictionary, as_toml

TOML = """\
idle = "20s"

[[route]]
path = "/upload"
methods = ["POST", "PUT"]
body_grace = "5m"
max_body = "2g"

[[route]]
path = "/events"
methods = "GET"
handler = "off"

[[route]]
path = "/"
body_min_rate = 100

[[route]]
path = "/healthz"
access_log = false

[[route]]
path = "/livez"
access_log = true
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "conf.toml"


def test_routes_are_read_and_shown(file: Path) -> None:
    file.write_text(TOML)
    resolution = resolve(Sources(file=str(file)))
    routes = resolution.config.routes
    assert routes == (
        Route("/upload", frozenset({"POST", "PUT"}), {"body_grace": 300.0, "max_body": float(2 << 30)}),
        Route("/events", frozenset({"GET"}), {"handler": math.inf}),
        Route("/", frozenset(), {"body_min_rate": 100.0}),
        Route("/healthz", frozenset(), {}, observed=False),
        Route("/livez", frozenset(), {}),
    )
    assert as_dictionary(resolution)["route"][:2] == [
        {"path": "/upload", "methods": ["POST", "PUT"], "body_grace": "300s", "max_body": "2147483648"},
        {"path": "/events", "methods": ["GET"], "handler": "off"},
    ]
    assert as_dictionary(resolution)["route"][3] == {"path": "/healthz", "methods": [], "access_log": "false"}
    file.write_text(as_toml(resolution))
    assert resolve(Sources(file=str(file))).config == resolution.config


@pytest.mark.parametrize(
    ("toml", "told"),
    [
        ("[[route]]\nidle = 1", "F:1: route: path is missing"),
        ("[[route]]\npath = 1", "F:1: route: path: 1 is not text"),
        ("[[route]]\npath = 'a'", "F:1: route: 'a' is not a path for a route: write one like /upload"),
        ("[[route]]\npath = '/'\nmethods = 1", "F:1: route: methods: 1 is not a list of texts"),
        ("[[route]]\npath = '/'\nmethods = ['post']", "F:1: route: 'post' is not a method: write it in capitals"),
        (
            "[[route]]\npath = '/'\nmethods = ['GETT']",
            "F:1: route: methods: 'GETT' is no usual method; did you mean GET?",
        ),
        ("[[route]]\npath = '/'\nmethods = ['*']", "F:1: route: methods: '*' is no pattern here: leave methods out"),
        ("[[route]]\npath = '/'\nhandler = 'soon'", "F:3: route: handler: 'soon' is not a duration: write 500ms"),
        ("[[route]]\npath = '/'\nhandler = -1", "F:3: route: handler: -1 is not a duration"),
        ("[[route]]\npath = '/'\nmax_body = 0", "F:3: route: max_body: must be above 0; off"),
        ("[[route]]\npath = '/'\n\nbody_grac = 1", "F:4: route: body_grac: unknown key; did you mean body_grace?"),
        ("[[route]]\npath = '/'\naccess_log = 1", "F:3: route: access_log: 1 is neither true nor false: write true or"),
        ("[[route]]\npath = '/'\nport = 1", "F:3: route: port: unknown key; port is a setting of the whole server"),
        ("[[route]]\npath = '/'\nx = 'hunter2'", "F:3: route: x: unknown key"),
        (
            "[[route]]\npath='/'\n[[route]]\npath='/'\nread_header=1",
            "F:5: route: read_header: cannot be set for a route",
        ),
        (
            "[[route]]\npath='/'\nmax_head=1",
            "F:3: route: max_head: cannot be set for a route: it is checked before the",
        ),
        ("[[route]]\npath = '*'", "F:1: route: '*' is not a path for a route: write one like /upload"),
        ("[[route]]\npath = '/a'\n[[route]]\npath = '/a/'", "F: route: two routes are for /a/; give it once"),
        ("[route]\npath = '/a'", "F:1: route: write a table [[route]] for each"),
        ("route = 5", "F:1: route: write a table [[route]] for each"),
        ("idle = 1\nroute = [5]", "F:2: route: write a table [[route]] for each"),
    ],
)
def test_a_mistake_in_a_route_is_told_with_its_line(file: Path, toml: str, told: str) -> None:
    file.write_text(toml)
    with pytest.raises(ConfigurationError) as caught:
        resolve(Sources(file=str(file)))
    (problem,) = caught.value.problems
    assert problem.replace(str(file), "F").startswith(told)
    assert "hunter2" not in problem


@pytest.mark.parametrize(
    ("path", "instead"),
    [
        ("/items/{number}/a", "/items"),
        ("/a/b-<int:id>", "/a"),
        ("/a/:id", "/a"),
        ("/api/**", "/api"),
        ("/*", "/"),
        ("/:id", "/"),
    ],
)
def test_a_pattern_is_refused_because_it_would_match_nothing(file: Path, path: str, instead: str) -> None:
    file.write_text(f"[[route]]\npath = '{path}'\nhandler = 1")
    with pytest.raises(ConfigurationError) as caught:
        resolve(Sources(file=str(file)))
    (problem,) = caught.value.problems
    assert problem.startswith(f"{file}:1: route: '{path}' is a pattern, and a route is for its path and all below it")
    assert f": write {instead}; or %" in problem


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("/%7Bme%7D", "/{me}"),
        ("/a/%3Aid/%2A", "/a/:id/*"),
        ("/v1/items:batch", "/v1/items:batch"),
        ("/caf%C3%A9", "/café"),
        ("/50%25", "/50%"),
        ("/50%", "/50%"),
        ("/why%3F/%23", "/why?/#"),
        ("/a%2Fb", "/a/b"),
        ("/%FF", "/\ufffd"),
        ("/%257B", "/%7B"),
    ],
)
def test_a_path_is_percent_decoded_as_those_of_requests_are(file: Path, written: str, path: str) -> None:
    file.write_text(f"[[route]]\npath = '{written}'\nhandler = 1")
    resolution = resolve(Sources(file=str(file)))
    (found,) = resolution.config.routes
    assert found.path == path
    assert Routes([found], Timeouts(), Limits()).choose("GET", written.encode()) is not None
    file.write_text(as_toml(resolution))
    assert resolve(Sources(file=str(file))).config == resolution.config


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/upload?a=b", "write /upload, without a query; or %3F for a path that has a '?'"),
        ("/{id}/a#b?", "write /{id}/a, without a query; or %23 for a path that has a '#'"),
    ],
)
def test_a_path_with_a_query_or_a_fragment_is_refused(file: Path, path: str, told: str) -> None:
    file.write_text(f"[[route]]\npath = '{path}'")
    with pytest.raises(ConfigurationError) as caught:
        resolve(Sources(file=str(file)))
    assert caught.value.problems == [f"{file}:1: route: '{path}' is more than a path: {told}"]


# registered with IANA, and what caches, WebDAV, UPnP and Vault make up
EXTENSIONS = """
ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT CONNECT COPY LABEL LINK LOCK MERGE MKACTIVITY MKCALENDAR MKCOL
MKREDIRECTREF MKWORKSPACE MOVE ORDERPATCH PRI PROPFIND PROPPATCH QUERY REBIND REPORT SEARCH TRACE UNBIND UNCHECKOUT
UNLINK UNLOCK UPDATE UPDATEREDIRECTREF VERSION-CONTROL PURGE BAN REFRESH SUBSCRIBE NOTIFY M-SEARCH LIST SET PUSH"""


def test_a_method_need_not_be_a_usual_one(file: Path) -> None:
    file.write_text(f"[[route]]\npath = '/'\nmethods = {EXTENSIONS.split()}\nhandler = 1")
    (found,) = resolve(Sources(file=str(file))).config.routes
    assert found.methods == set(EXTENSIONS.split())


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("POTS", "POST"),
        ("PSOT", "POST"),
        ("DELTE", "DELETE"),
        ("OPTION", "OPTIONS"),
        ("PACTH", "PATCH"),
        ("PUTT", "PUT"),
    ],
)
def test_a_method_with_a_typing_error_is_refused(file: Path, written: str, meant: str) -> None:
    file.write_text(f"[[route]]\npath = '/'\nmethods = ['GET', '{written}']\nhandler = 1")
    with pytest.raises(ConfigurationError, match=f"'{written}' is no usual method; did you mean {meant}"):
        resolve(Sources(file=str(file)))


def test_all_mistakes_of_all_routes_are_told(file: Path) -> None:
    file.write_text("idel = 1\n[[route]]\nread_header = 1\nhandler = 'x'\n[[route]]\npath = 'b'\n")
    with pytest.raises(ConfigurationError) as caught:
        resolve(Sources(file=str(file)))
    lines = sorted(int(problem.removeprefix(f"{file}:").partition(":")[0]) for problem in caught.value.problems)
    assert lines == [1, 3, 4, 5]
