"""What an application is told of TLS, and of the client's certificate: ASGI's TLS extension."""

from __future__ import annotations

import ssl
import sys
from typing import Any

import pytest
import trustme

from deadlined import BrokenResourceError, open_tls_stream
from deadlined.asgi import AsgiServer
from tests.support.conformance import Loop, on_each_loop
from tests.support.embedded import GET, App, ask, body, everything
from tests.support.net import LOCALHOST, SERVER_NAME
from tests.support.odd import odd_certificate

# a request after which the connection goes on
KEPT = GET.replace(b"connection: close", b"accept: */*")

AUTHORITY = trustme.CA()
# of an authority between
BETWEEN = AUTHORITY.create_child_ca()
SERVER = AUTHORITY.issue_cert(SERVER_NAME)
CLIENT = BETWEEN.issue_cert("client.example", common_name="Ann, of the shop", organization_unit_name="Sales")
STRANGER = trustme.CA().issue_cert("client.example")

# of those that the tests meet, from IANA's registry
CIPHER_SUITES = {
    "TLS_AES_128_GCM_SHA256": 0x1301,
    "TLS_AES_256_GCM_SHA384": 0x1302,
    "TLS_CHACHA20_POLY1305_SHA256": 0x1303,
    "ECDHE-ECDSA-AES128-GCM-SHA256": 0xC02B,
    "ECDHE-ECDSA-AES256-GCM-SHA384": 0xC02C,
    "ECDHE-ECDSA-CHACHA20-POLY1305": 0xCCA9,
}


def server_context(mode: ssl.VerifyMode) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    SERVER.configure_cert(context)
    AUTHORITY.configure_trust(context)
    context.verify_mode = mode
    return context


def client_context(certificate: trustme.LeafCert | None, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    if certificate is not None:
        certificate.configure_cert(context)
    if version is not None:
        context.maximum_version = version
    return context


async def told(mode: ssl.VerifyMode, context: ssl.SSLContext) -> Any:
    """What the application finds in its scope."""
    app = App()
    async with AsgiServer(app, port=0, ssl_context=server_context(mode)) as server:
        conn = await open_tls_stream(LOCALHOST, server.port, ssl_context=context, server_hostname=SERVER_NAME)
        async with conn:
            await conn.send_all(GET)
            assert body(await everything(conn)) == b"hello"
            cipher = conn.ssl_object.cipher()
    found = app.scope["extensions"]["tls"]
    assert cipher is not None
    assert found["cipher_suite"] == CIPHER_SUITES[cipher[0]]
    assert found["server_cert"] is found["client_cert_error"] is None
    return found


@on_each_loop
async def test_without_tls_there_is_no_extension(loop: Loop) -> None:
    app = App()
    async with AsgiServer(app, port=0) as server:
        await ask(server.port)
    assert "tls" not in app.scope["extensions"]


@pytest.mark.parametrize(("version", "number"), [(ssl.TLSVersion.TLSv1_2, 0x0303), (ssl.TLSVersion.TLSv1_3, 0x0304)])
@on_each_loop
async def test_its_version_and_cipher_suite_are_told(loop: Loop, version: ssl.TLSVersion, number: int) -> None:
    found = await told(ssl.CERT_NONE, client_context(CLIENT, version))
    assert found["tls_version"] == number
    # nobody has asked for a certificate
    assert (found["client_cert_name"], found["client_cert_chain"]) == (None, ())


@pytest.mark.parametrize("mode", [ssl.CERT_OPTIONAL, ssl.CERT_REQUIRED])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@on_each_loop
async def test_a_client_is_named_by_its_certificate(loop: Loop, version: ssl.TLSVersion, mode: ssl.VerifyMode) -> None:
    context = client_context(CLIENT, version)
    found = await told(mode, context)
    assert found["client_cert_name"].startswith("CN=Ann\\, of the shop,OU=Sales,O=")
    own, *others = CLIENT.cert_chain_pems
    sent = [own, *others] if sys.version_info >= (3, 13) else [own]
    assert [pem.encode() for pem in found["client_cert_chain"]] == [blob.bytes() for blob in sent]


@pytest.mark.parametrize("part", ["name", "address"])
@on_each_loop
async def test_a_client_is_served_whose_certificate_has_parts_that_are_no_text(loop: Loop, part: str) -> None:
    context = client_context(None)
    odd_certificate(AUTHORITY, part).configure_cert(context)
    found = await told(ssl.CERT_REQUIRED, context)
    assert found["client_cert_name"] == {"name": "x500UniqueIdentifier=#03020001,CN=Ann", "address": "CN=Ann"}[part]
    assert found["client_cert_chain"]


@on_each_loop
async def test_a_client_may_do_without_a_certificate_where_it_is_optional(loop: Loop) -> None:
    found = await told(ssl.CERT_OPTIONAL, client_context(None))
    assert (found["client_cert_name"], found["client_cert_chain"]) == (None, ())


@pytest.mark.parametrize("certificate", [None, STRANGER], ids=["none", "a stranger's"])
@on_each_loop
async def test_a_client_that_is_not_known_comes_to_no_application(
    loop: Loop, certificate: trustme.LeafCert | None
) -> None:
    app = App()
    async with AsgiServer(app, port=0, ssl_context=server_context(ssl.CERT_REQUIRED)) as server:
        with pytest.raises(BrokenResourceError):
            # in TLS 1.3 the client learns it after its handshake
            async with await open_tls_stream(
                LOCALHOST, server.port, ssl_context=client_context(certificate), server_hostname=SERVER_NAME
            ) as conn:
                await conn.send_all(GET)
                await everything(conn)
    assert app.events == ["startup", "shutdown"]


@on_each_loop
async def test_each_request_has_an_extension_of_its_own(loop: Loop) -> None:
    app = App()
    async with AsgiServer(app, port=0, ssl_context=server_context(ssl.CERT_REQUIRED)) as server:
        conn = await open_tls_stream(
            LOCALHOST, server.port, ssl_context=client_context(CLIENT), server_hostname=SERVER_NAME
        )
        async with conn:
            await conn.send_all(KEPT)
            assert body(await conn.receive_some()) == b"hello"
            first = app.scope["extensions"]["tls"]
            before = dict(first)
            first["client_cert_name"] = "CN=root"
            await conn.send_all(KEPT)
            assert body(await conn.receive_some()) == b"hello"
            assert app.scope["extensions"]["tls"] == before
