"""The opening handshake of a websocket, whose rules an optional extra has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .exchange import Exchange

if TYPE_CHECKING:
    from .wire.frames import Frames


def open_frames(exchange: Exchange) -> Frames:
    """Return the frames of the websocket that the request of `exchange` asks for. Raise UpgradeRefused if it is not a
    valid handshake, ImportError if the extra `websockets` is not installed."""
    from .wire.frames import negotiate

    return negotiate(exchange.request, exchange.limits, exchange.ws_compression)
