"""The TLS options: what the context accepts, and one line in words for each mistake."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from deadlined.service.config import ServeConfig
from deadlined.service.config.conflicts import conflicts
from deadlined.service.config.rereading import context_of
from deadlined.service.errors import WRONG_ARGUMENTS, StartupError
from deadlined.service.tls.certificates import server_context
from tests.support.command import run
from tests.support.revoked import revoked

PASSWORD = b"secret"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with certificates and keys, good and bad."""
    directory = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    issued, other = authority.issue_cert("server.example"), authority.issue_cert("other.example")
    rsa = authority.issue_cert("rsa.example", key_type=trustme.KeyType.RSA)
    chain, key = issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes()
    loaded = serialization.load_pem_private_key(key, None)
    encrypted = loaded.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(PASSWORD),
    )
    listed = revoked(authority, other)
    contents = {
        "ca.pem": authority.cert_pem.bytes(),
        "cert.pem": chain,
        "key.pem": key,
        "both.pem": chain + key,
        "other-key.pem": other.private_key_pem.bytes(),
        "encrypted.pem": encrypted,
        "both-encrypted.pem": chain + encrypted,
        "password": PASSWORD + b"\nnot this line",
        "password-crlf": PASSWORD + b"\r\n",
        "wrong-password": b"guess",
        "empty-password": b"\nsecret",
        "long-password": b"x" * 1025,
        "empty": b"",
        "junk.pem": b"hello",
        "cert.der": ssl.PEM_cert_to_DER_cert(chain.decode()),
        "damaged-cert.pem": chain[:100] + chain[200:],
        "crl.pem": listed,
        "damaged-crl.pem": listed[:100] + listed[200:],
        "crl-and-ca.pem": listed + authority.cert_pem.bytes(),
        "damaged-key.pem": key[:60] + key[100:],
        "rsa.pem": rsa.cert_chain_pems[0].bytes(),
        "rsa-key.pem": rsa.private_key_pem.bytes(),
    }
    for name, content in contents.items():
        (directory / name).write_bytes(content)
    (directory / "directory").mkdir()
    return directory


# the options, what the error is about, and what it says
MISTAKES: dict[str, tuple[Mapping[str, str], str, str]] = {
    "no file": ({"certfile": "nowhere"}, "--certfile {}/nowhere: ", "No such file"),
    "a directory": ({"certfile": "directory"}, "--certfile {}/directory: ", "Is a directory"),
    "not PEM": ({"certfile": "cert.der", "keyfile": "key.pem"}, "--certfile {}/cert.der: ", "no certificate"),
    "junk": ({"certfile": "junk.pem"}, "--certfile {}/junk.pem: ", "no certificate"),
    "nothing": ({"certfile": "empty"}, "--certfile {}/empty: ", "no certificate"),
    "damaged": ({"certfile": "damaged-cert.pem", "keyfile": "key.pem"}, "--certfile {}/damaged-cert.pem: ", "damaged"),
    "no key": ({"certfile": "cert.pem"}, "--certfile {}/cert.pem: ", "give its file with --keyfile"),
    "no key file": ({"certfile": "cert.pem", "keyfile": "nowhere"}, "--keyfile {}/nowhere: ", "No such file"),
    "no key in it": ({"certfile": "cert.pem", "keyfile": "ca.pem"}, "--keyfile {}/ca.pem: ", "no private key"),
    "damaged key": (
        {"certfile": "cert.pem", "keyfile": "damaged-key.pem"},
        "--keyfile {}/damaged-key.pem: ",
        "damaged",
    ),
    "another key": (
        {"certfile": "cert.pem", "keyfile": "other-key.pem"},
        "--keyfile {}/other-key.pem: ",
        "not the one",
    ),
    "an RSA key for an ECDSA certificate": (
        {"certfile": "cert.pem", "keyfile": "rsa-key.pem"},
        "--keyfile {}/rsa-key.pem: ",
        "not the one",
    ),
    "an ECDSA key for an RSA certificate": (
        {"certfile": "rsa.pem", "keyfile": "other-key.pem"},
        "--keyfile {}/other-key.pem: ",
        "not the one",
    ),
    "no password": (
        {"certfile": "cert.pem", "keyfile": "encrypted.pem"},
        "--keyfile {}/encrypted.pem: ",
        "--key-password-file",
    ),
    "no password, one file": ({"certfile": "both-encrypted.pem"}, "--certfile {}/both-encrypted.pem: ", "encrypted"),
    "wrong password": (
        {"certfile": "cert.pem", "keyfile": "encrypted.pem", "key_password_file": "wrong-password"},
        "--key-password-file {}/wrong-password: ",
        "not the password",
    ),
    "empty password": (
        {"certfile": "cert.pem", "keyfile": "encrypted.pem", "key_password_file": "empty-password"},
        "--key-password-file {}/empty-password: ",
        "empty",
    ),
    "long password": (
        {"certfile": "cert.pem", "keyfile": "encrypted.pem", "key_password_file": "long-password"},
        "--key-password-file {}/long-password: ",
        "1024",
    ),
    "no password file": (
        {"certfile": "both.pem", "key_password_file": "nowhere"},
        "--key-password-file {}/nowhere: ",
        "No such file",
    ),
    "no authorities": ({"certfile": "both.pem", "client_ca": "nowhere"}, "--client-ca {}/nowhere: ", "No such file"),
    "no authority in it": ({"certfile": "both.pem", "client_ca": "key.pem"}, "--client-ca {}/key.pem: ", "no certif"),
    "damaged authority": (
        {"certfile": "both.pem", "client_ca": "damaged-cert.pem"},
        "--client-ca {}/damaged-cert.pem: ",
        "damaged",
    ),
    "no list": ({"certfile": "both.pem", "client_ca": "ca.pem", "client_crl": "x"}, "--client-crl {}/x: ", "No such"),
    "no list in it": (
        {"certfile": "both.pem", "client_ca": "ca.pem", "client_crl": "ca.pem"},
        "--client-crl {}/ca.pem: ",
        "no list of revoked certificates",
    ),
    "an authority in it": (
        {"certfile": "both.pem", "client_ca": "ca.pem", "client_crl": "crl-and-ca.pem"},
        "--client-crl {}/crl-and-ca.pem: ",
        "a certificate is in this file",
    ),
    "damaged list": (
        {"certfile": "both.pem", "client_ca": "ca.pem", "client_crl": "damaged-crl.pem"},
        "--client-crl {}/damaged-crl.pem: ",
        "damaged",
    ),
}


def in_directory(files: Path, options: Mapping[str, str]) -> dict[str, str]:
    return {name: str(files / value) for name, value in options.items()}


@pytest.mark.parametrize(("options", "about", "says"), MISTAKES.values(), ids=MISTAKES)
def test_each_mistake_is_one_line_that_names_the_file(
    options: Mapping[str, str], about: str, says: str, files: Path
) -> None:
    with pytest.raises(StartupError) as raised:
        server_context(**in_directory(files, options))
    message = str(raised.value)
    assert message.startswith(about.format(files))
    assert says in message
    assert "\n" not in message
    assert "_ssl.c" not in message
    assert raised.value.exit_code == WRONG_ARGUMENTS


@pytest.mark.parametrize("removed", ["cert.pem", "key.pem", "ca.pem", "crl.pem"])
def test_a_file_that_is_removed_between_our_look_and_that_of_openssl_is_one_line(
    removed: str, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"certfile": "cert.pem", "keyfile": "key.pem", "client_ca": "ca.pem", "client_crl": "crl.pem"}
    for name in options.values():
        (tmp_path / name).write_bytes((files / name).read_bytes())

    def read_and_remove(option: str, file: str) -> bytes:
        content = Path(file).read_bytes()
        if file.endswith(removed):
            Path(file).unlink()
        return content

    monkeypatch.setattr("deadlined.service.tls.certificates._read", read_and_remove)
    with pytest.raises(StartupError, match=r"--certfile .*cert\.pem: .* changed while it was loaded: No such file"):
        server_context(**in_directory(tmp_path, options))


@pytest.mark.parametrize("option", ["keyfile", "key_password_file", "client_ca", "ciphers"])
def test_an_option_of_tls_needs_a_certificate(option: str) -> None:
    given: dict[str, Any] = {option: "x"}
    assert f"--{option.replace('_', '-')} needs --certfile" in conflicts(ServeConfig(**given))


def test_a_list_of_revoked_certificates_needs_authorities_and_these_a_certificate() -> None:
    assert conflicts(ServeConfig(client_crl="x")) == ["--client-crl needs --client-ca"]
    assert conflicts(ServeConfig(client_crl="x", client_ca="y")) == ["--client-ca needs --certfile"]


def test_without_a_certificate_there_is_no_tls() -> None:
    assert context_of(ServeConfig()) is None


@pytest.mark.parametrize("password", ["password", "password-crlf"])
@pytest.mark.parametrize(
    "options", [{"certfile": "cert.pem", "keyfile": "encrypted.pem"}, {"certfile": "both-encrypted.pem"}]
)
def test_the_first_line_of_a_file_is_the_password(options: Mapping[str, str], password: str, files: Path) -> None:
    assert server_context(**in_directory(files, {**options, "key_password_file": password}))


def test_the_defaults(files: Path) -> None:
    context = server_context(str(files / "both.pem"))
    assert context is not None
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.verify_mode is ssl.CERT_NONE
    assert context.options & ssl.OP_NO_RENEGOTIATION


def test_the_options_reach_the_context(files: Path) -> None:
    context = server_context(
        str(files / "both.pem"),
        client_ca=str(files / "ca.pem"),
        client_crl=str(files / "crl.pem"),
        ciphers="ECDHE-ECDSA-AES128-GCM-SHA256",
        tls_min="1.3",
    )
    assert context is not None
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.cert_store_stats() == {"x509": 1, "x509_ca": 1, "crl": 1}
    old = [cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] != "TLSv1.3"]
    assert old == ["ECDHE-ECDSA-AES128-GCM-SHA256"]


def test_certificates_of_clients_can_be_optional(files: Path) -> None:
    context = server_context(str(files / "both.pem"), client_ca=str(files / "ca.pem"), client_certificate="optional")
    assert context is not None
    assert context.verify_mode is ssl.CERT_OPTIONAL


ROOT = trustme.CA()
BETWEEN = ROOT.create_child_ca()
CLIENT = BETWEEN.issue_cert("client.example")
OTHER = BETWEEN.issue_cert("other.example")


@pytest.mark.parametrize("authorities", [[ROOT], [BETWEEN, ROOT]], ids=["root", "both"])
@pytest.mark.parametrize(
    ("lists", "why"),
    [
        ([], ""),
        ([revoked(ROOT), revoked(BETWEEN, OTHER)], ""),
        ([revoked(ROOT), revoked(BETWEEN, CLIENT)], "certificate revoked"),
        # the authority that has signed the client's certificate
        ([revoked(ROOT, BETWEEN), revoked(BETWEEN)], "certificate revoked"),
        ([revoked(BETWEEN)], "unable to get certificate CRL"),
        ([revoked(ROOT)], "unable to get certificate CRL"),
    ],
    ids=["none", "another", "the client", "its authority", "without the root's", "without the authority's"],
)
def test_who_is_refused_by_a_list(
    lists: list[bytes], why: str, authorities: list[trustme.CA], files: Path, tmp_path: Path
) -> None:
    trusted, listed = tmp_path / "ca.pem", tmp_path / "crl.pem"
    trusted.write_bytes(b"".join(authority.cert_pem.bytes() for authority in authorities))
    listed.write_bytes(b"".join(lists))
    crl = {"client_crl": str(listed)} if lists else {}
    context = server_context(str(files / "both.pem"), client_ca=str(trusted), **crl)
    assert context is not None
    assert refusal(context) == why


def refusal(context: ssl.SSLContext) -> str:
    """Why a server does not accept the client's certificate; "" if it does."""
    asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asking.check_hostname, asking.verify_mode = False, ssl.CERT_NONE
    CLIENT.configure_cert(asking)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client, server = asking.wrap_bio(back, there), context.wrap_bio(there, back, server_side=True)
    for side in (client, server, client, server):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            return error.verify_message
    return ""


def test_a_cipher_that_nobody_knows_is_refused(files: Path) -> None:
    with pytest.raises(StartupError, match="--ciphers NONSENSE: "):
        server_context(str(files / "both.pem"), ciphers="NONSENSE")


def test_a_file_for_the_keys_of_connections_that_cannot_be_written_is_named(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # of Python, for each context
    monkeypatch.setenv("SSLKEYLOGFILE", str(files / "none" / "keys"))
    with pytest.raises(StartupError, match=r"SSLKEYLOGFILE=.*/none/keys: cannot write it: No such file") as caught:
        server_context(str(files / "both.pem"))
    assert caught.value.exit_code == WRONG_ARGUMENTS


def test_the_command_says_it_and_exits_with_2(files: Path) -> None:
    done = run("serve", "--port", "0", "--certfile", str(files / "cert.pem"), "--keyfile", str(files / "encrypted.pem"))
    assert done.returncode == WRONG_ARGUMENTS
    assert done.stderr.strip().splitlines()[-1].startswith(f"Error: --keyfile {files}/encrypted.pem: ")


def test_an_unknown_version_is_refused(files: Path) -> None:
    done = run("serve", "--certfile", str(files / "both.pem"), "--tls-min", "1.1")
    assert done.returncode == WRONG_ARGUMENTS
    assert "'1.1'" in done.stderr
