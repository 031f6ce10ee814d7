"""When the certificates of a file are valid. The `ssl` module shows this only for a peer's certificate.

So the two times are read from the certificate itself. Only files that OpenSSL has accepted are read; a certificate that
is not as expected is left out.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from ..http.certificate import VALIDITY, elements, parts_of

# of a certificate that is about to expire; Let's Encrypt renews 30 days before
SOON: Final = timedelta(days=7)

_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"

# the tag of a time with two digits of the year
_UTC_TIME: Final = 0x17


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
    for number, validity in enumerate(validities(Path(certfile).read_text("ascii", "replace"))):
        if text := validity.warning(now):
            which = "the certificate" if not number else f"certificate {number + 1} of the chain"
            return f"{which} in {certfile} {text}"
    return ""


def validities(pem: str) -> list[Validity]:
    """Return the validity of each certificate of a text, in its order, without those that cannot be read."""
    found = []
    for part in pem.split(_BEGIN)[1:]:
        try:
            der = ssl.PEM_cert_to_DER_cert(f"{_BEGIN}{part.partition(_END)[0]}{_END}\n")
            found.append(_validity(der))
        except (ValueError, IndexError):
            continue
    return found


def _validity(der: bytes) -> Validity:
    """Return the validity of a certificate. ValueError or IndexError if it is not one."""
    (begins_tag, begins, _), (ends_tag, ends, _) = elements(parts_of(der)[VALIDITY][1])
    return Validity(_time(begins_tag, begins), _time(ends_tag, ends))


def _time(tag: int, text: bytes) -> datetime:
    digits = text.decode("ascii")
    if tag == _UTC_TIME:
        # RFC 5280, 4.1.2.5.1
        digits = ("19" if digits >= "50" else "20") + digits
    return datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _date(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M} UTC"
