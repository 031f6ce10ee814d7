"""Where a request comes from, as trusted proxies say, and as clients who lie would have it."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deadlined.http.forwarded import Address, _known_node, is_well_formed, plain_address
from deadlined.http.trusted import FORWARDED, WRITTEN, X_FORWARDED, Origin, TrustedProxies, is_gone, proxy
from deadlined.service.config.model import FORWARDED_FIELDS
from tests.support.examples import examples

PROXY = ("10.0.0.1", 1234)
HERE = Origin(PROXY, "http", ("10.0.0.2", 8000))
TRUSTED = TrustedProxies(["10.0.0.0/8", "fd00::/8"])


def origin(*fields: tuple[str, str], here: Origin = HERE, trusted: TrustedProxies = TRUSTED) -> Origin:
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in fields]
    return trusted.origin([(b"host", b"a"), *headers], *here) or here


def client_of(forwarded: str) -> Address | None:
    return origin(("Forwarded", forwarded)).client


def x_client_of(*values: str) -> Address | None:
    return origin(*(("X-Forwarded-For", value) for value in values)).client


# one field


@pytest.mark.parametrize(
    ("value", "client"),
    [
        ("192.0.2.1", ("192.0.2.1", 0)),
        ("192.0.2.1:80", ("192.0.2.1", 80)),
        ("2001:db8::1", ("2001:db8::1", 0)),
        ("[2001:db8::1]", ("2001:db8::1", 0)),
        ("[2001:DB8:0::1]:4711", ("2001:db8::1", 4711)),
        ("::ffff:192.0.2.1", ("192.0.2.1", 0)),
        # the rightmost that is no trusted proxy
        ("6.6.6.6, 192.0.2.1", ("192.0.2.1", 0)),
        ("6.6.6.6, 192.0.2.1, 10.9.9.9", ("192.0.2.1", 0)),
        ("6.6.6.6,192.0.2.1,[fd00::1]:80,::ffff:10.0.0.7", ("192.0.2.1", 0)),
        # what ends the walk
        ("6.6.6.6, unknown", PROXY),
        ("6.6.6.6, _hidden, 10.0.0.4", ("10.0.0.4", 0)),
        ("6.6.6.6, ", PROXY),
        ("6.6.6.6, 192.0.2.256", PROXY),
        ("6.6.6.6, 010.0.0.1", PROXY),
        ("6.6.6.6, 192.0.2.1:99999", PROXY),
        ("6.6.6.6, 192.0.2.1:", PROXY),
        ("6.6.6.6, [192.0.2.1]", PROXY),
        ("6.6.6.6, [2001:db8::1", PROXY),
        ("6.6.6.6, fe80::1%eth0", PROXY),
        ("6.6.6.6, 192.0.2.1 10.0.0.4", PROXY),
        ("6.6.6.6, 192.0.2.1\x0b", PROXY),
        ("6.6.6.6, \u00b2.0.2.1", PROXY),
        ("6.6.6.6, '; drop table", PROXY),
    ],
)
def test_the_client_of_x_forwarded_for(value: str, client: Address) -> None:
    assert x_client_of(value) == client
    assert x_client_of("7.7.7.7", *value.split(", ")) == client, "a list can come in several fields"


def test_among_trusted_proxies_only_the_first_is_the_client() -> None:
    assert x_client_of("10.0.0.3, 10.0.0.4") == ("10.0.0.3", 0)


@pytest.mark.parametrize(
    ("value", "client"),
    [
        ("for=192.0.2.1", ("192.0.2.1", 0)),
        ('for="192.0.2.1:80"', ("192.0.2.1", 80)),
        ("For=192.0.2.1:80;Proto=http", ("192.0.2.1", 80)),
        ('for="[2001:db8::1]:4711"', ("2001:db8::1", 4711)),
        ("for=[2001:db8::1]", ("2001:db8::1", 0)),
        (r'for="19\2.0.2.1"', ("192.0.2.1", 0)),
        ('for=6.6.6.6, for=192.0.2.1;by="10.0.0.1", for=10.0.0.4', ("192.0.2.1", 0)),
        ('for=6.6.6.6, by="a, for=7.7.7.7";for=192.0.2.1', ("192.0.2.1", 0)),
        ("for=6.6.6.6 , , for=192.0.2.1,", ("192.0.2.1", 0)),
        ("for=6.6.6.6, for=unknown", PROXY),
        ("for=6.6.6.6, for=_SEVKISEK", PROXY),
        ("for=6.6.6.6, proto=https", PROXY),
        # malformed
        ('for=6.6.6.6, for="192.0.2.1', PROXY),
        ('for=6.6.6.6, for="192.0.2.1"x', PROXY),
        ("for=6.6.6.6, for = 192.0.2.1", PROXY),
        ("for=6.6.6.6, for=192.0.2.1 for=10.0.0.1", PROXY),
        ("for=6.6.6.6, for=192.0.2.1;FOR=7.7.7.7", PROXY),
        ("for=6.6.6.6, =192.0.2.1", PROXY),
        ("for=6.6.6.6, for=", PROXY),
        ("", PROXY),
    ],
)
def test_the_client_of_forwarded(value: str, client: Address) -> None:
    assert client_of(value) == client


def test_a_malformed_field_does_not_spoil_what_the_last_proxy_has_written_in_its_own() -> None:
    fields = [("Forwarded", 'for=6.6.6.6;x="'), ("Forwarded", "for=192.0.2.1, for=10.0.0.9")]
    assert origin(*fields).client == ("192.0.2.1", 0)
    assert origin(*reversed(fields)).client == PROXY


# scheme and server


@pytest.mark.parametrize(
    ("fields", "scheme"),
    [
        ([("X-Forwarded-Proto", "https")], "https"),
        ([("X-Forwarded-Proto", "HTTPS")], "https"),
        ([("X-Forwarded-Proto", "wss")], "https"),
        ([("X-Forwarded-Proto", "http, https")], "https"),
        ([("X-Forwarded-Proto", "gopher")], "http"),
        ([("X-Forwarded-Proto", "https, ")], "http"),
        ([("X-Forwarded-For", "6.6.6.6, 192.0.2.1"), ("X-Forwarded-Proto", "https, http")], "http"),
        ([("X-Forwarded-For", "192.0.2.1, 10.0.0.4"), ("X-Forwarded-Proto", "https, http")], "https"),
        ([("X-Forwarded-For", "192.0.2.1, 10.0.0.4"), ("X-Forwarded-Proto", "https")], "https"),
        ([("Forwarded", "for=6.6.6.6;proto=https, for=192.0.2.1;proto=http")], "http"),
        ([("Forwarded", "for=192.0.2.1;proto=https, for=10.0.0.4;proto=http")], "https"),
        ([("Forwarded", "for=192.0.2.1, for=10.0.0.4;proto=https")], "https"),
        ([("Forwarded", "for=_x;proto=https")], "https"),
    ],
)
def test_the_scheme_is_the_one_that_the_client_used(fields: list[tuple[str, str]], scheme: str) -> None:
    assert origin(*fields).scheme == scheme


@pytest.mark.parametrize(
    ("fields", "server"),
    [
        ([("X-Forwarded-Host", "shop.example")], ("shop.example", 80)),
        ([("X-Forwarded-Host", "shop.example"), ("X-Forwarded-Proto", "https")], ("shop.example", 443)),
        ([("X-Forwarded-Host", "shop.example"), ("X-Forwarded-Port", "444")], ("shop.example", 444)),
        ([("X-Forwarded-Host", "[2001:db8::1]:81")], ("2001:db8::1", 81)),
        ([("X-Forwarded-Port", "444")], ("10.0.0.2", 444)),
        ([("X-Forwarded-Port", "99999")], ("10.0.0.2", 8000)),
        ([("X-Forwarded-Host", "a/b"), ("X-Forwarded-Port", "-1")], ("10.0.0.2", 8000)),
        ([("Forwarded", 'for=192.0.2.1;host="shop.example:81"')], ("shop.example", 81)),
        ([("Forwarded", "for=6.6.6.6;host=evil.example, for=192.0.2.1;host=shop.example")], ("shop.example", 80)),
    ],
)
def test_the_server_is_the_one_that_the_client_asked_for(fields: list[tuple[str, str]], server: Address) -> None:
    assert origin(*fields).server == server


# whom to believe


@pytest.mark.parametrize(
    ("proxies", "peer", "believed"),
    [
        ([], "127.0.0.1", False),
        (["10.0.0.1"], "10.0.0.1", True),
        (["10.0.0.1"], "10.0.0.2", False),
        (["10.0.0.0/8", "unix"], "10.255.255.255", True),
        (["10.0.0.0/8"], "::ffff:10.0.0.1", True),
        (["::ffff:10.0.0.0/104"], "::ffff:10.0.0.1", True),
        (["::ffff:10.0.0.0/104"], "10.0.0.1", True),
        (["::ffff:10.0.0.0/104"], "11.0.0.1", False),
        (["::ffff:10.0.0.1"], "10.0.0.1", True),
        (["fe80::/10"], "fe80::1%eth0", True),
        (["0.0.0.0/0"], "2001:db8::1", False),
        (["0.0.0.0/0"], "127.0.0.1", True),
        (["unix"], None, True),
        (["10.0.0.0/8"], None, False),
        (["unix"], "127.0.0.1", False),
    ],
)
def test_only_a_trusted_peer_is_believed(proxies: list[str], peer: str | None, believed: bool) -> None:
    here = Origin(None if peer is None else (peer, 1), "http", None)
    fields = [("X-Forwarded-For", "192.0.2.1"), ("X-Forwarded-Proto", "https"), ("Forwarded", "for=192.0.2.1")]
    found = origin(*fields, here=here, trusted=TrustedProxies(proxies))
    assert (found.client == ("192.0.2.1", 0)) == believed
    assert believed or found is here


def test_a_proxy_on_a_unix_socket_is_believed_and_its_path_is_no_host() -> None:
    here = Origin(None, "http", ("/run/shop.sock", None))
    found = origin(
        ("X-Forwarded-For", "192.0.2.1"), ("X-Forwarded-Port", "8443"), here=here, trusted=TrustedProxies(["unix"])
    )
    assert found == (("192.0.2.1", 0), "http", ("/run/shop.sock", None))


def test_a_peer_over_tcp_that_is_gone_is_not_taken_for_one_over_a_unix_socket() -> None:
    assert TrustedProxies(["unix"]).origin([(b"x-forwarded-for", b"6.6.6.6")], None, "http", ("10.0.0.2", 80)) is None


@pytest.mark.parametrize(
    ("forwarded", "x_for", "x_proto", "client", "scheme"),
    [
        ("for=192.0.2.1;proto=https", "192.0.2.1", "https", "192.0.2.1", "https"),
        ('for="192.0.2.1:5"', "192.0.2.1", "http", "192.0.2.1", "http"),
        # one of the two is the client's own
        ("for=6.6.6.6", "192.0.2.1", "http", PROXY[0], "http"),
        ("for=192.0.2.1", "6.6.6.6", "http", PROXY[0], "http"),
        ("for=192.0.2.1;proto=https", "192.0.2.1", "http", "192.0.2.1", "http"),
        ("for=unknown;proto=https", "192.0.2.1", "https", PROXY[0], "http"),
    ],
)
def test_of_two_fields_only_what_they_agree_on_is_believed(
    forwarded: str, x_for: str, x_proto: str, client: str, scheme: str
) -> None:
    found = origin(("Forwarded", forwarded), ("X-Forwarded-For", x_for), ("X-Forwarded-Proto", x_proto))
    assert found.client is not None
    assert (found.client[0], found.scheme) == (client, scheme)


@pytest.mark.parametrize(
    ("written", "client", "scheme"), [(FORWARDED, "192.0.2.1", "https"), (X_FORWARDED, "192.0.2.2", "http")]
)
def test_what_the_proxies_do_not_write_is_as_if_it_were_not_there(written: str, client: str, scheme: str) -> None:
    fields = [("X-Forwarded-For", "192.0.2.2"), ("Forwarded", "for=192.0.2.1;proto=https")]
    trusted = TrustedProxies(["10.0.0.0/8"], written)
    assert origin(*fields, trusted=trusted) == ((client, 0), scheme, HERE.server)
    (own,) = [field for field in fields if field[0].lower().startswith("x-") == (written == X_FORWARDED)]
    (other,) = [field for field in fields if field is not own]
    assert origin(own, trusted=trusted).client == (client, 0)
    assert trusted.origin([(other[0].lower().encode(), other[1].encode())], *HERE) is None


def test_what_the_proxies_write_must_be_known() -> None:
    with pytest.raises(ValueError, match="'x' is not known: choose one of both, forwarded, x-forwarded"):
        TrustedProxies([], "x")
    assert WRITTEN == FORWARDED_FIELDS


_LIES = st.lists(
    st.sampled_from(
        ['"', "\\", ",", ";", "=", " ", "for", "for=6.6.6.6", "x=", "6.6.6.6", "[", "]", ":", "\xff", "\t"]
    ),
    max_size=12,
).map("".join)
_WRITTEN = [("for=192.0.2.1", "192.0.2.1"), ('for="[2001:db8::1]:47";by="10.0.0.1"', "2001:db8::1")]


@settings(max_examples=examples(500))
@given(_LIES, st.sampled_from(_WRITTEN))
def test_no_lie_of_a_client_hides_what_its_proxy_appends(lie: str, written: tuple[str, str]) -> None:
    appended, real = written
    assert origin(("Forwarded", lie), ("Forwarded", appended)).client == client_of(appended)
    joined = client_of(f"{lie}, {appended}")
    assert joined is not None
    assert joined[0] in (real, PROXY[0])
    assert x_client_of(f"{lie}, {real}") == (real, 0)


@settings(max_examples=examples(500))
@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["forwarded", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-forwarded-port"]
            ),
            st.one_of(_LIES, st.text(st.characters(max_codepoint=255), max_size=20)),
        ),
        max_size=6,
    )
)
def test_whatever_comes_the_answer_is_an_address_a_scheme_and_a_port(fields: list[tuple[str, str]]) -> None:
    found = origin(*fields)
    assert found.client is not None
    ip_address(found.client[0])
    assert found.scheme in ("http", "https")
    assert found.server is not None
    assert found.server[1] is not None
    assert 0 < found.server[1] < 65536


def test_the_longest_address_is_read_and_what_is_longer_is_neither_read_nor_remembered() -> None:
    longest = "[0000:0000:0000:0000:0000:ffff:100.100.100.100]:65535"
    assert client_of(f'for="{longest}"') == x_client_of(longest) == ("100.100.100.100", 65535)
    before = _known_node.cache_info().currsize
    for text in ("a" * 54, "1" * 10_000, f"[{'0' * 5000}::1]"):
        assert (client_of(f'for="{text}"'), x_client_of(text)) == (PROXY, PROXY)
    assert _known_node.cache_info().currsize == before


def test_a_list_without_end_is_read_to_the_length_of_any_real_path() -> None:
    assert x_client_of("6.6.6.6," + "10.0.0.4," * 1000 + "10.0.0.5") == ("10.0.0.4", 0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("*", "0.0.0.0/0 and ::/0 are everyone"),
        ("10.0.0.1/8", "it has host bits set"),
        ("localhost", "write an address, a network such as 10.0.0.0/8, or unix"),
        ("10.0.0.0/33", "is not a proxy"),
        ("", "is not a proxy"),
    ],
)
def test_what_is_no_proxy_is_told(text: str, words: str) -> None:
    with pytest.raises(ValueError, match="is not a proxy") as caught:
        proxy(text)
    assert words in str(caught.value)


# what other modules ask


@pytest.mark.parametrize(
    ("proxies", "client", "trusted"),
    [
        (["10.0.0.0/8"], ("10.0.0.1", 1), True),
        (["10.0.0.0/8"], ("192.0.2.1", 1), False),
        (["10.0.0.0/8"], None, False),
        (["unix"], None, True),
        (["unix"], ("10.0.0.1", 1), False),
        (["unix"], ("no-address", 1), False),
    ],
)
def test_a_proxy_is_trusted_by_its_address_or_as_a_unix_socket(
    proxies: list[str], client: Address | None, trusted: bool
) -> None:
    assert TrustedProxies(proxies).trusts(client) is trusted


@pytest.mark.parametrize(
    ("client", "server", "gone"),
    [
        (None, ("10.0.0.2", 80), True),
        (PROXY, ("10.0.0.2", 80), False),
        (None, ("/run/shop.sock", None), False),
        (None, None, False),
    ],
)
def test_a_client_that_is_gone_is_told_from_a_unix_socket(
    client: Address | None, server: tuple[str, int | None] | None, gone: bool
) -> None:
    assert is_gone(client, server) is gone


@pytest.mark.parametrize(
    ("host", "plain"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:DB8::1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1"),
    ],
)
def test_an_address_as_the_fields_have_it(host: str, plain: str) -> None:
    assert plain_address(host) == plain


def test_what_is_no_address_is_told() -> None:
    with pytest.raises(ValueError, match="no-address"):
        plain_address("no-address")


@pytest.mark.parametrize("line", ["", "for=192.0.2.1", 'for="[::1]:80";by=_x, , proto=http,', "for=unknown"])
def test_what_is_appended_to_a_well_formed_field_can_be_read(line: str) -> None:
    assert is_well_formed(line)
    assert client_of(f"{line}, for=192.0.2.9") == ("192.0.2.9", 0)


@pytest.mark.parametrize("line", ['for="', "for=1 for=2", "for=192.0.2.1;for=192.0.2.2", "=", 'for="\\"'])
def test_what_is_appended_to_a_malformed_one_is_lost(line: str) -> None:
    assert not is_well_formed(line)
    assert client_of(f"{line}, for=192.0.2.9") == PROXY
