"""When certificates are valid."""

from __future__ import annotations

import signal
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from deadlined.service.tls.validity import Validity, validities, warning, warning_of_lists
from tests.support.command import Starter
from tests.support.revoked import revoked

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def certificate(begins: datetime | None, ends: datetime) -> bytes:
    """Return a certificate and its key, in PEM."""
    issued = trustme.CA().issue_cert("localhost", not_before=begins, not_after=ends)
    return issued.private_key_and_cert_chain_pem.bytes()


@pytest.mark.parametrize(
    ("begins", "ends"),
    [
        (datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC), datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC)),
        # RFC 5280 writes years from 2050 on in another form
        (datetime(1999, 1, 2, tzinfo=UTC), datetime(2050, 1, 1, tzinfo=UTC)),
        (datetime(2051, 1, 2, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)),
    ],
)
def test_the_times_of_a_certificate_are_read(begins: datetime, ends: datetime) -> None:
    assert validities(certificate(begins, ends).decode())[0] == Validity(begins, ends)


@pytest.mark.parametrize(
    ("begins", "ends", "words"),
    [
        (-DAY, 100 * DAY, ""),
        (-DAY, -DAY / 24, "has expired on 2026-06-01 11:00 UTC: clients will refuse it"),
        (-DAY, timedelta(), "has expired on 2026-06-01 12:00 UTC"),
        (DAY, 100 * DAY, "is not valid before 2026-06-02 12:00 UTC: clients will refuse it"),
        (-DAY, 6 * DAY, "expires soon, on 2026-06-07 12:00 UTC"),
        (-DAY, 7 * DAY, ""),
    ],
)
def test_a_certificate_that_clients_refuse_is_a_warning_with_the_date(
    tmp_path: Path, begins: timedelta, ends: timedelta, words: str
) -> None:
    file = tmp_path / "cert.pem"
    file.write_bytes(certificate(NOW + begins - 2 * DAY if begins < timedelta() else NOW + begins, NOW + ends))
    found = warning(str(file), NOW)
    assert found.startswith(f"the certificate in {file} {words}" if words else "")
    assert bool(found) is bool(words)


def test_the_certificates_of_a_chain_are_looked_at(tmp_path: Path) -> None:
    file = tmp_path / "chain.pem"
    file.write_bytes(certificate(NOW - DAY, NOW + 99 * DAY) + certificate(NOW - 9 * DAY, NOW - DAY))
    assert warning(str(file), NOW).startswith("certificate 2 of the chain in ")


@pytest.mark.parametrize("length", [0, 1, 5, 20, 60, 200])
def test_what_cannot_be_read_has_no_known_validity(length: int) -> None:
    der = ssl.PEM_cert_to_DER_cert("-----BEGIN" + certificate(NOW - DAY, NOW + DAY).decode().split("-----BEGIN")[2])
    assert validities(ssl.DER_cert_to_PEM_cert(der[:length])) == []
    assert validities("-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----") == []
    assert len(validities(ssl.DER_cert_to_PEM_cert(der))) == 1


def test_an_expired_certificate_is_served_with_one_warning(start: Starter, tmp_path: Path) -> None:
    (tmp_path / "old.pem").write_bytes(certificate(NOW - 900 * DAY, datetime(2025, 1, 2, tzinfo=UTC)))
    process = start("--certfile", "old.pem", "--workers", "2")
    process.wait_for("listening")
    process.signal()
    assert process.end() == (0, "")
    (line,) = [line for line in process.lines if line["level"] == "warning"]
    whole = tmp_path / "old.pem"
    assert line["event"] == f"the certificate in {whole} has expired on 2025-01-02 00:00 UTC: clients will refuse it"


ONE, OTHER = trustme.CA(), trustme.CA(organization_name="Other")


def until(ends: datetime, authority: trustme.CA = ONE) -> bytes:
    """Return a list that is valid until then."""
    return revoked(authority, begins=ends - 9 * DAY, ends=ends)


LATE = "is out of date since 2026-05-31 12:00 UTC: clients below its authority are refused"


@pytest.mark.parametrize(
    ("lists", "words"),
    [
        ([until(NOW + DAY)], ""),
        ([until(NOW)], "is out of date since 2026-06-01 12:00 UTC"),
        ([until(NOW - DAY)], LATE),
        # the latest one counts
        ([until(NOW - DAY), until(NOW + DAY)], ""),
        ([until(NOW + DAY), until(NOW - DAY)], ""),
        ([until(NOW + DAY), until(NOW - DAY, OTHER)], LATE),
        ([b"-----BEGIN X509 CRL-----\nMIIB\n-----END X509 CRL-----\n", until(NOW - DAY)], LATE),
        ([until(datetime(2050, 1, 1, tzinfo=UTC))], ""),
        ([], ""),
    ],
)
def test_a_list_that_is_out_of_date_is_a_warning_with_the_date(tmp_path: Path, lists: list[bytes], words: str) -> None:
    file = tmp_path / "crl.pem"
    file.write_bytes(b"".join(lists))
    found = warning_of_lists(str(file), NOW)
    assert found.startswith(f"a list in {file} {words}" if words else "")
    assert bool(found) is bool(words)


@pytest.mark.parametrize("workers", [1, 2])
def test_it_is_told_at_the_start_and_at_a_reload(start: Starter, tmp_path: Path, workers: int) -> None:
    ends = datetime.now(UTC) + 99 * DAY
    (tmp_path / "own.pem").write_bytes(certificate(None, ends))
    ONE.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    lists = tmp_path / "crl.pem"
    lists.write_bytes(until(datetime(2025, 1, 2, tzinfo=UTC)))
    files = ("--certfile", "own.pem", "--client-ca", "ca.pem", "--client-crl", "crl.pem")
    process = start(*files, "--workers", str(workers))
    process.signal(signal.SIGHUP)
    process.wait_for("reloaded" if workers == 1 else "workers replaced")
    process.signal()
    assert process.end() == (0, "")
    said = f"a list in {lists} is out of date since 2025-01-02 00:00 UTC: clients below its authority are refused"
    assert [line["event"] for line in process.lines if line["level"] == "warning"] == [said, said]
    (reloaded,) = [line for line in process.lines if line["event"] == "reloaded"]
    assert reloaded["certificate_until"] == f"{ends:%Y-%m-%d %H:%M} UTC"
