"""The name of a client, as RFC 4514 writes it, beside another writer of such names."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from deadlined.http.tls_facts import distinguished_name
from tests.support.examples import examples

# a name as `ssl.SSLObject.getpeercert` has it
Subject = tuple[tuple[tuple[str, str], ...], ...]

NUMBERS = {
    "commonName": NameOID.COMMON_NAME,
    "localityName": NameOID.LOCALITY_NAME,
    "stateOrProvinceName": NameOID.STATE_OR_PROVINCE_NAME,
    "organizationName": NameOID.ORGANIZATION_NAME,
    "organizationalUnitName": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "streetAddress": NameOID.STREET_ADDRESS,
    "domainComponent": NameOID.DOMAIN_COMPONENT,
    "userId": NameOID.USER_ID,
}


@pytest.mark.parametrize(
    ("subject", "text"),
    [
        # the examples of RFC 4514, 4
        (((("DC", "net"),), (("DC", "example"),), (("UID", "jsmith"),)), "UID=jsmith,DC=example,DC=net"),
        (((("DC", "net"),), (("OU", "Sales"), ("CN", "J.  Smith"))), "OU=Sales+CN=J.  Smith,DC=net"),
        (((("CN", 'James "Jim" Smith, III'),),), 'CN=James \\"Jim\\" Smith\\, III'),
        (((("SN", "Lu\u010di\u0107"),),), "SN=Lu\u010di\u0107"),
        ((), ""),
        (((("commonName", ""),),), "CN="),
        (((("commonName", " "),),), "CN=\\ "),
        (((("commonName", "  "),),), "CN=\\ \\ "),
        (((("commonName", "#\0 a=b;<c>+\\ "),),), "CN=\\#\\00 a=b\\;\\<c\\>\\+\\\\\\ "),
        (((("countryName", "DE"),), (("emailAddress", "a@b.example"),)), "emailAddress=a@b.example,C=DE"),
    ],
)
def test_a_name_is_written_by_the_rules(subject: Subject, text: str) -> None:
    assert distinguished_name(subject) == text


_PARTS = st.lists(
    st.dictionaries(st.sampled_from(sorted(NUMBERS)), st.text(' #,+"\\<>;=\0aä', min_size=1, max_size=8), min_size=1),
    max_size=4,
)


@settings(max_examples=examples(500))
@given(_PARTS)
def test_every_name_is_written_as_cryptography_writes_it(parts: list[dict[str, str]]) -> None:
    attributes = [[x509.NameAttribute(NUMBERS[kind], text) for kind, text in part.items()] for part in parts]
    name = x509.Name([x509.RelativeDistinguishedName(each) for each in attributes])
    assert distinguished_name(tuple(tuple(part.items()) for part in parts)) == name.rfc4514_string()
