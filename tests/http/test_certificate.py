"""The name of a client, as RFC 4514 writes it, beside another writer of such names."""

from __future__ import annotations

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ObjectIdentifier
from hypothesis import given, settings
from hypothesis import strategies as st

from deadlined.http.certificate import distinguished_name, name_of
from tests.support.der import BIT_STRING, UTF8, Attribute, element, names
from tests.support.examples import examples

CN, OU, DC, UID = "2.5.4.3", "2.5.4.11", "0.9.2342.19200300.100.1.25", "0.9.2342.19200300.100.1.1"
# that cryptography names as well: L, ST, O, STREET
TYPES = [CN, OU, DC, UID, "2.5.4.7", "2.5.4.8", "2.5.4.10", "2.5.4.9"]


def text(number: str, value: str) -> Attribute:
    return (number, UTF8, value.encode())


def common(value: str) -> list[Attribute]:
    return [text(CN, value)]


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        # the examples of RFC 4514, 4
        ([[text(DC, "net")], [text(DC, "example")], [text(UID, "jsmith")]], "UID=jsmith,DC=example,DC=net"),
        ([[text(DC, "net")], [text(OU, "Sales"), *common("J.  Smith")]], "OU=Sales+CN=J.  Smith,DC=net"),
        ([common('James "Jim" Smith, III')], 'CN=James \\"Jim\\" Smith\\, III'),
        ([common("Before\rAfter")], "CN=Before\\0DAfter"),
        ([common("a\x85b\x9b\u2028c")], "CN=a\\C2\\85b\\C2\\9B\\E2\\80\\A8c"),
        ([[text("2.5.4.4", "Lu\u010di\u0107")]], "sn=Lu\u010di\u0107"),
        ([], ""),
        ([[], common("Ann"), []], "CN=Ann"),
        ([common("")], "CN="),
        ([common(" ")], "CN=\\ "),
        ([common("  ")], "CN=\\ \\ "),
        ([common("#\0 a=b;<c>+\\ ")], "CN=\\#\\00 a=b\\;\\<c\\>\\+\\\\\\ "),
        ([common("a\r\nb: c\x7f")], "CN=a\\0D\\0Ab: c\\7F"),
        ([[text("2.5.4.6", "DE")], [text("1.2.840.113549.1.9.1", "a@b.example")]], "emailAddress=a@b.example,C=DE"),
        # a type without a name may be anybody's
        ([[text("2.999.1234567", "x,CN=root")]], "2.999.1234567=#0c09782c434e3d726f6f74"),
        ([[("2.5.4.45", BIT_STRING, b"\0\1\2")]], "x500UniqueIdentifier=#0303000102"),
    ],
)
def test_a_name_is_written_by_the_rules(parts: list[list[Attribute]], told: str) -> None:
    assert distinguished_name(names(*parts)) == told


@pytest.mark.parametrize(
    ("tag", "content", "told"),
    [
        *((tag, b"Ann", "Ann") for tag in (0x0C, 0x12, 0x13, 0x14, 0x16, 0x1A)),
        (0x0C, "\u017dofie".encode(), "\u017dofie"),
        (0x1E, "\u017dofie".encode("utf-16-be"), "\u017dofie"),
        (0x1C, "\u017dofie".encode("utf-32-be"), "\u017dofie"),
        (0x14, b"J\xf6rg", "J\xf6rg"),
        (0x0C, b"a\xff", "#0c0261ff"),
        (0x1E, b"a", "#1e0161"),
        (0x1C, b"\x7f\xff\xff\xff", "#1c047fffffff"),
        (0x30, b"", "#3000"),
    ],
)
def test_a_value_is_told_in_bytes_if_it_is_not_text(tag: int, content: bytes, told: str) -> None:
    assert distinguished_name(names([(CN, tag, content)])) == f"CN={told}"


_PARTS = st.lists(
    st.dictionaries(st.sampled_from(TYPES), st.text(' #,+"\\<>;=\0aä', min_size=1, max_size=8), min_size=1), max_size=4
)


@settings(max_examples=examples(500))
@given(_PARTS)
def test_every_name_is_written_as_cryptography_writes_it(parts: list[dict[str, str]]) -> None:
    attributes = [[x509.NameAttribute(ObjectIdentifier(kind), value) for kind, value in part.items()] for part in parts]
    expected = x509.Name(map(x509.RelativeDistinguishedName, attributes)).rfc4514_string()
    assert distinguished_name(names(*([text(*pair) for pair in part.items()] for part in parts))) == expected


def test_what_is_no_certificate_has_no_name() -> None:
    pem = trustme.CA().issue_cert("client.example", common_name="Ann").cert_chain_pems[0].bytes()
    der = x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)
    assert name_of(der).startswith("CN=Ann,")
    for length in (0, 1, 5, 20, 60, len(der) - 1):
        assert name_of(der[:length]) == ""


@pytest.mark.parametrize(
    "name",
    [
        # BER, which OpenSSL reads: a length that is not told
        b"\x31\x80" + element(0x30, b"") + b"\0\0",
        element(0x31, element(0x30, b"")),
        element(0x31, element(0x30, element(0x06, b"") + element(UTF8, b"a"))),
        element(0x31, element(0x30, element(0x06, b"\x55\x04\x83") + element(UTF8, b"a"))),
        element(0x31, element(0x30, element(0x06, b"\x55\x04\x03") + b"\x1f\x01a")),
        names([(f"2.5.{'9' * 200}", UTF8, b"a")]),
    ],
)
def test_a_name_that_is_not_der_is_none(name: bytes) -> None:
    parts = [element(0x30, b"")] * 4
    assert name_of(element(0x30, element(0x30, b"".join((*parts, element(0x30, names(common("a")))))))) == "CN=a"
    assert name_of(element(0x30, element(0x30, b"".join((*parts, element(0x30, name)))))) == ""


@settings(max_examples=examples(500))
@given(st.binary(max_size=40))
def test_no_bytes_are_an_error(der: bytes) -> None:
    assert isinstance(name_of(der), str)
    assert isinstance(name_of(element(0x30, element(0x30, b"\x30\0" * 4 + element(0x30, der)))), str)
