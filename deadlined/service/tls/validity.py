"""When the certificates, and the lists of revoked certificates, of a file are valid. The `ssl` module shows this only
for a peer's certificate.

So the times are read from them. Only files that OpenSSL has accepted are read; what is not as expected is left out.
"""

from __future__ import annotations

from base64 import b64decode
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from ...http.certificate import VALIDITY, Element, elements, parts_of

# of a certificate that is about to expire; Let's Encrypt renews 30 days before
SOON: Final = timedelta(days=7)

_CERTIFICATE: Final = "CERTIFICATE"
_LIST: Final = "X509 CRL"

# the tags of a time; the first one has two digits of the year
_UTC_TIME: Final = 0x17
_TIMES: Final = (_UTC_TIME, 0x18)


@dataclass(frozen=True)
class Validity:
    """From when until when a certificate is valid."""

    begins: datetime
    ends: datetime

    def warning(self, now: datetime) -> str:
        """Say what is wrong at `now`; "" if nothing is."""
        if now < self.begins:
            return f"is not valid before {_date(self.begins)}: clients will refuse it"
        if now >= self.ends:
            return f"has expired on {_date(self.ends)}: clients will refuse it"
        return f"expires soon, on {_date(self.ends)}" if self.ends - now < SOON else ""


def warning(certfile: str, now: datetime) -> str:
    """Say which certificate of a PEM file is not valid at `now`, or not for long; "" if all are, or it is not known."""
    for number, validity in enumerate(validities(_text(certfile))):
        if text := validity.warning(now):
            which = "the certificate" if not number else f"certificate {number + 1} of the chain"
            return f"{which} in {certfile} {text}"
    return ""


def end_of(certfile: str) -> str:
    """Return the time until which a PEM file's first certificate is valid; "" if that is not known."""
    found = validities(_text(certfile))
    return _date(found[0].ends) if found else ""


def warning_of_lists(client_crl: str, now: datetime) -> str:
    """Say that the latest list of an authority in a PEM file is out of date at `now`; "" if none is, or it is not
    known."""
    latest: dict[bytes, Validity] = {}
    for der in _contents(_text(client_crl), _LIST):
        try:
            authority, validity = _list(der)
        except (ValueError, IndexError):
            continue
        if authority not in latest or validity.ends > latest[authority].ends:
            latest[authority] = validity
    late = [validity.ends for validity in latest.values() if validity.ends <= now]
    if not late:
        return ""
    return f"a list in {client_crl} is out of date since {_date(min(late))}: clients below its authority are refused"


def validities(pem: str) -> list[Validity]:
    """Return the validity of each certificate of a text, in its order, without those that cannot be read."""
    found = []
    for der in _contents(pem, _CERTIFICATE):
        try:
            found.append(_of(elements(parts_of(der)[VALIDITY][1])))
        except (ValueError, IndexError):
            continue
    return found


def _text(file: str) -> str:
    try:
        return Path(file).read_text("ascii", "replace")
    except OSError:
        # it was there a moment ago
        return ""


def _contents(pem: str, kind: str) -> list[bytes]:
    """Return the DER of all blocks of a kind; b"" of one that is damaged."""
    texts = [part.partition(f"-----END {kind}-----")[0] for part in pem.split(f"-----BEGIN {kind}-----")[1:]]
    return [_decoded(text) for text in texts]


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text)
    except ValueError:
        return b""


def _list(der: bytes) -> tuple[bytes, Validity]:
    """Return the name of the authority of a list, and when the list is valid (RFC 5280, 5.1). ValueError or IndexError
    if it is not one."""
    parts = elements(elements(elements(der)[0][1])[0][1])
    (at, *_) = [place for place, (tag, _, _) in enumerate(parts) if tag in _TIMES]
    times = [part for part in parts[at : at + 2] if part[0] in _TIMES]
    return parts[at - 1][1], _of(times)


def _of(times: list[Element]) -> Validity:
    begins, ends = (_time(tag, text) for tag, text, _ in times)
    return Validity(begins, ends)


def _time(tag: int, text: bytes) -> datetime:
    digits = text.decode("ascii")
    if tag == _UTC_TIME:
        # RFC 5280, 4.1.2.5.1
        digits = ("19" if digits >= "50" else "20") + digits
    return datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _date(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M} UTC"
