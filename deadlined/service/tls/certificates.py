"""The TLS context of `deadlined serve`, made from files; one line says what is wrong with one of them.

OpenSSL names neither the file nor, in most cases, the mistake ("PEM lib"), and it would ask for a missing password on
the terminal. So each file is read and checked before OpenSSL is given it.
"""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Final

from ..errors import WRONG_ARGUMENTS, StartupError

# bytes; Python's limit
_LONGEST_PASSWORD: Final = 1024

# what begins and ends them in PEM
_CERTIFICATE: Final = b"CERTIFICATE-----"
_REVOKED: Final = b"X509 CRL-----"
_PRIVATE_KEY: Final = b"PRIVATE KEY-----"

# how OpenSSL refuses the key of another certificate: of one of the same kind, and of another kind (RSA, ECDSA)
_NOT_ITS_KEY: Final = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED")

# the accepted values of --tls-min
VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}

# the accepted values of --client-certificate
CLIENT_CERTIFICATES: Final = {"required": ssl.CERT_REQUIRED, "optional": ssl.CERT_OPTIONAL}


def server_context(
    certfile: str,
    keyfile: str | None = None,
    *,
    key_password_file: str | None = None,
    client_ca: str | None = None,
    client_certificate: str = "required",
    client_crl: str | None = None,
    ciphers: str | None = None,
    tls_min: str = "1.2",
) -> ssl.SSLContext:
    """Make the context of a server. StartupError names the file and says what is wrong.

    The context offers HTTP/1.1 by ALPN and refuses renegotiation. With `client_ca`, each client must have a certificate
    that one of these authorities has signed; if `client_certificate` is "optional", it may also have none. A
    certificate is refused if it, or one of an authority above it, is in a list of `client_crl`. `ciphers` is OpenSSL's
    list for TLS 1.2; it does not apply to TLS 1.3.
    """
    context = _new_context(tls_min)
    try:
        _load_certificate(context, certfile, keyfile, key_password_file)
        if client_ca is not None:
            _load_authorities(context, client_ca)
            context.verify_mode = CLIENT_CERTIFICATES[client_certificate]
        if client_crl is not None:
            _load_revoked(context, client_crl)
    except OSError as error:
        # it could be read when it was checked
        why = error.strerror or error
        raise _wrong(f"--certfile {certfile}: it, or a file for it, changed while it was loaded: {why}") from None
    if ciphers is not None:
        _choose_ciphers(context, ciphers)
    return context


def _new_context(tls_min: str) -> ssl.SSLContext:
    context = _default_context()
    context.minimum_version = VERSIONS[tls_min]
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    return context


def _default_context() -> ssl.SSLContext:
    try:
        return ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    except ssl.SSLError:
        raise
    except OSError as error:
        # Python opens it for each context
        file = os.environ.get("SSLKEYLOGFILE")
        raise _wrong(f"the variable SSLKEYLOGFILE={file}: cannot write it: {error.strerror}") from None


def _load_certificate(context: ssl.SSLContext, certfile: str, keyfile: str | None, password_file: str | None) -> None:
    if _CERTIFICATE not in _read("--certfile", certfile):
        raise _wrong(
            f"--certfile {certfile}: no certificate is in this file, in PEM (it begins with BEGIN CERTIFICATE)"
        )
    option, key = ("--certfile", certfile) if keyfile is None else ("--keyfile", keyfile)
    if _PRIVATE_KEY not in _read(option, key):
        hint = "; give its file with --keyfile" if keyfile is None else ""
        raise _wrong(f"{option} {key}: no private key is in this file, in PEM{hint}")
    password = None if password_file is None else _read_password(password_file)
    asked = False

    def answer() -> bytes:
        nonlocal asked
        asked = True
        return password or b""

    try:
        context.load_cert_chain(certfile, keyfile, answer)
    except ssl.SSLError as error:
        raise _wrong(_why_not_loaded(error, certfile, f"{option} {key}", password_file, asked)) from None


def _why_not_loaded(error: ssl.SSLError, certfile: str, key: str, password_file: str | None, asked: bool) -> str:
    """Say why OpenSSL did not load a certificate and its key. `asked`: it has asked for the key's password."""
    reason = _reason(error)
    if reason in _NOT_ITS_KEY:
        return f"{key}: this private key is not the one of the certificate in {certfile}"
    if reason:
        return f"--certfile {certfile}: OpenSSL refuses the certificate: {_readable(error)}"
    if asked and password_file is None:
        return f"{key}: the private key is encrypted; give its password with --key-password-file"
    if asked:
        return f"--key-password-file {password_file}: this is not the password of the private key ({key})"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(certfile)
    except ssl.SSLError:
        return f"--certfile {certfile}: the certificate is damaged"
    return f"{key}: the private key is damaged, or of a kind that OpenSSL does not know"


def _load_authorities(context: ssl.SSLContext, client_ca: str) -> None:
    if _CERTIFICATE not in _read("--client-ca", client_ca):
        raise _wrong(f"--client-ca {client_ca}: no certificate is in this file, in PEM")
    try:
        context.load_verify_locations(client_ca)
    except ssl.SSLError:
        raise _wrong(f"--client-ca {client_ca}: a certificate is damaged") from None


def _load_revoked(context: ssl.SSLContext, client_crl: str) -> None:
    content = _read("--client-crl", client_crl)
    if _REVOKED not in content:
        raise _wrong(f"--client-crl {client_crl}: no list of revoked certificates is in this file, in PEM")
    if _CERTIFICATE in content:
        # OpenSSL would take it for one more authority
        raise _wrong(f"--client-crl {client_crl}: a certificate is in this file; give authorities with --client-ca")
    try:
        context.load_verify_locations(client_crl)
    except ssl.SSLError:
        raise _wrong(f"--client-crl {client_crl}: a list is damaged") from None
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN
    # Python sets it since 3.13. A chain that ends with an authority between has no list of the one that signed it
    context.verify_flags &= ~ssl.VERIFY_X509_PARTIAL_CHAIN


def _choose_ciphers(context: ssl.SSLContext, ciphers: str) -> None:
    try:
        context.set_ciphers(ciphers)
    except ssl.SSLError:
        raise _wrong(f"--ciphers {ciphers}: OpenSSL has no cipher suite of this list (see `openssl ciphers`)") from None


def _read(option: str, file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise _wrong(f"{option} {file}: cannot read it: {error.strerror or error}") from None
    except ValueError as error:
        # a null byte in the name
        raise _wrong(f"{option} {file!r}: {error}") from None


def _read_password(file: str) -> bytes:
    """Return the first line of the file."""
    password = _read("--key-password-file", file).partition(b"\n")[0].rstrip(b"\r")
    if not password:
        raise _wrong(f"--key-password-file {file}: its first line is empty, and should be the password")
    if len(password) > _LONGEST_PASSWORD:
        raise _wrong(f"--key-password-file {file}: its first line is longer than {_LONGEST_PASSWORD} bytes")
    return password


def _reason(error: ssl.SSLError) -> str:
    """Return OpenSSL's name for what is wrong, "" if it gives none."""
    return getattr(error, "reason", None) or ""


def _readable(error: ssl.SSLError) -> str:
    return _reason(error).replace("_", " ").lower()


def _wrong(message: str) -> StartupError:
    return StartupError(message, WRONG_ARGUMENTS)
