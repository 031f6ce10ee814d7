"""Where to listen, as people write it."""

from __future__ import annotations

import pytest

from deadlined.service.config.binds import (
    Bind,
    InheritedBind,
    TcpBind,
    UnixBind,
    check_host,
    check_owner,
    parse_admin,
    parse_bind,
)


@pytest.mark.parametrize(
    ("text", "bind"),
    [
        ("127.0.0.1:8000", TcpBind("127.0.0.1", 8000)),
        ("localhost:0", TcpBind("localhost", 0)),
        (":80", TcpBind("", 80)),
        ("[::1]:8000", TcpBind("::1", 8000)),
        ("[fe80::1%eth0]:8000", TcpBind("fe80::1%eth0", 8000)),
        ("[::]:65535", TcpBind("::", 65535)),
        ("unix:/run/x.sock", UnixBind("/run/x.sock")),
        ("unix:///run/x.sock", UnixBind("/run/x.sock")),
        ("unix:x:y", UnixBind("x:y")),
        ("fd://3", InheritedBind(3)),
        ("fd://0", InheritedBind(0)),
    ],
)
def test_a_place_is_read(text: str, bind: Bind) -> None:
    assert parse_bind(text) == bind
    assert parse_bind(str(bind)) == bind


@pytest.mark.parametrize(
    "text",
    [
        *["", "8000", "127.0.0.1", "a:65536", "a:-1", "a:", "a:80x", "::1:80", "[::1]", "[::1]80", "[]:80", "a b:80"],
        *["http://a:80", "a:80/", "unix:", "unix", "fd://", "fd:3", "fd://x", "fd://-1", "fd://3 ", "a:8\uff10"],
    ],
)
def test_what_is_no_place_says_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a place to listen: write 127\.0\.0\.1:8000, \[::1\]:8000, unix:/run"):
        parse_bind(text)


@pytest.mark.parametrize("text", ["", "127.0.0.1", "::", "fe80::1%eth0", "localhost", "shop.example", "*"])
def test_a_host_is_kept_as_it_is_written(text: str) -> None:
    assert check_host(text) == text


@pytest.mark.parametrize("text", ["[::1]", "127.0.0.1:8000", "localhost:80", "http://localhost", "::1:x", "a b", " "])
def test_what_is_no_host_says_where_the_port_goes(text: str) -> None:
    with pytest.raises(ValueError, match="is not a host: write an address or a name, without brackets; the port goes"):
        check_host(text)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("127.0.0.1:9000", TcpBind("127.0.0.1", 9000)),
        ("[::1]:0", TcpBind("::1", 0)),
        (":9000", TcpBind("", 9000)),
        ("localhost:65535", TcpBind("localhost", 65535)),
        ("unix:/run/x y.sock", UnixBind("/run/x y.sock")),
    ],
)
def test_the_place_of_the_admin_listener_is_read(text: str, place: TcpBind | UnixBind) -> None:
    assert parse_admin(text) == place


@pytest.mark.parametrize(
    ("text", "right"),
    [("a", True), ("a:b", True), (":b", True), ("1:2", True)]
    + [("4294967294", True), (":4294967294", True)]
    # the largest number means to chown(2) that the owner stays
    + [(wrong, False) for wrong in ("", ":", "a:", "a:b:c", "a b", "4294967295", "a:4294967296")],
)
def test_an_owner_is_a_user_or_a_group_or_both(text: str, right: bool) -> None:
    if right:
        assert check_owner(text) == text
    else:
        with pytest.raises(ValueError, match="is not an owner: write user, user:group or :group, as names or numbers"):
            check_owner(text)
