"""The frames of one websocket, without I/O: bytes in, messages out, and back. The library `websockets` has the rules.

Facts      `websockets` checks frames and closes as RFC 6455 wants it, and masks in C. It inflates a frame no further
           than what is left of `max_message`. It gives the frames of a message one by one, and does not decode text.
           It has the limits of a message for control frames, too, which may come in the middle of one.
Hazard     A message in pieces of no bytes, or of one, must not take more memory than its bytes, nor last for ever. Text
           that is no UTF-8 must be noticed in the piece that breaks it.
Answer     The pieces of a message are joined as they come, counted, and those of a text decoded for the check. A
           message in one frame does not pass through the protocol of `websockets` (`splitter.py`), only through its
           compression. While a control frame passes, whose length the splitter has checked, the limits are lifted.
Cost       A text in pieces is decoded twice.
"""

from __future__ import annotations

import codecs
import logging
import sys
from typing import Any, Final

from websockets.datastructures import Headers  # type: ignore[import-not-found,unused-ignore]  # optional
from websockets.exceptions import (  # type: ignore[import-not-found,unused-ignore]
    NegotiationError,
    PayloadTooBig,
    ProtocolError,
)
from websockets.extensions.permessage_deflate import (  # type: ignore[import-not-found,unused-ignore]
    ServerPerMessageDeflateFactory,
)
from websockets.frames import Frame, Opcode  # type: ignore[import-not-found,unused-ignore]
from websockets.http11 import Request as Handshake  # type: ignore[import-not-found,unused-ignore]
from websockets.protocol import OPEN  # type: ignore[import-not-found,unused-ignore]
from websockets.server import ServerProtocol  # type: ignore[import-not-found,unused-ignore]

from ..errors import ResponseError, UpgradeRefused
from ..timeouts import INF, Limits
from .head import Request
from .response import LARGE, no_headers
from .response import Headers as Fields
from .splitter import CONTROL, ENDLESS, NOTHING, OTHER, TEXT, Splitter, head

Message = str | bytes

# pieces of one message. The Autobahn suite sends 65,536; no message needs more than this
MOST_PIECES: Final = 128 * 1024

# frames of one read that take about a millisecond to process
_MANY: Final = 64

# bytes of a reason: a close frame has 125, and the code takes two
_LONGEST_REASON: Final = 123

# fields of the 101 that the server writes itself
_OURS: Final = (
    b"upgrade",
    b"connection",
    b"sec-websocket-accept",
    b"sec-websocket-extensions",
    b"sec-websocket-protocol",
)

# of a response that the protocol makes: the server's own writer writes these
_FRAMING: Final = ("connection", "content-length", "date")

_log: Final = logging.getLogger("websockets.server")

_IS_TEXT: Final[Any] = Opcode.TEXT
_IS_BINARY: Final[Any] = Opcode.BINARY
_IS_CONT: Final[Any] = Opcode.CONT
_IS_CLOSE: Final[Any] = Opcode.CLOSE


class Frames:
    """One websocket's frames. Made by `negotiate`.

    The caller sends what `message` returns; and after each call of `feed`, `ping` or `close` the `data_to_send`.
    `peer_closed`: code and reason of the peer's close frame; `failed`: those to close with because the peer has broken
    the rules; None until then. No message comes after either. `few`: the bytes that were fed last made few frames.
    """

    __slots__ = (
        "_accept",
        "_check",
        "_compression",
        "_extensions",
        "_joined",
        "_most",
        "_pieces",
        "_protocol",
        "_speaks",
        "_splitter",
        "failed",
        "few",
        "offered",
        "peer_closed",
    )

    def __init__(self, protocol: Any, accept: str, extensions: str, offered: list[str], most: int) -> None:
        self._protocol: Any = protocol
        # the protocol may have something to send
        self._speaks: bool = False
        # the extension that compresses; None if none was agreed on
        self._compression: Any = protocol.extensions[0] if protocol.extensions else None
        # the bytes that a message in one frame may have once it is inflated; None for no limit
        self._most: int | None = None if most == ENDLESS else most
        self._splitter: Splitter = Splitter(most, self._compression is not None)
        # values of the 101's fields
        self._accept: str = accept
        self._extensions: str = extensions
        # the subprotocols that the client offers
        self.offered: list[str] = offered
        # the message of which the last piece has not come: its bytes and number of pieces, and the decoder of a text
        self._joined: bytearray | None = None
        self._pieces: int = 0
        self._check: Any = None
        self.peer_closed: tuple[int, str] | None = None
        self.failed: tuple[int, str] | None = None
        self.few: bool = True

    def response(self, subprotocol: str | None, headers: Fields) -> list[tuple[bytes, bytes]]:
        """Return the fields of the 101. Raise ResponseError for a subprotocol that was not offered, or a field that the
        server writes itself."""
        fields = [(b"upgrade", b"websocket"), (b"sec-websocket-accept", self._accept.encode("ascii"))]
        if self._extensions:
            fields.append((b"sec-websocket-extensions", self._extensions.encode("ascii")))
        if subprotocol is not None:
            if subprotocol not in self.offered:
                raise ResponseError(f"the client has not offered the subprotocol {subprotocol!r}")
            fields.append((b"sec-websocket-protocol", subprotocol.encode("ascii")))
        try:
            for name, value in headers:
                if name.lower() in _OURS:
                    raise ResponseError(f"the server writes the field {name!r} itself; a subprotocol is an argument")
                fields.append((name, value))
        except (TypeError, ValueError, AttributeError) as error:
            raise no_headers(error) from error
        return fields

    @property
    def incomplete(self) -> bool:
        """True while some of a frame or of a message has come, and not all."""
        return self._joined is not None or self._splitter.incomplete

    def feed(self, data: bytes) -> list[Message]:
        """Take bytes of the peer, and return the messages that are complete with them."""
        messages: list[Message] = []
        splitter = self._splitter
        if not self._ended:
            splitter.put(data)
        kind = splitter.next(self._joined is not None)
        while kind != NOTHING:
            if kind == OTHER:
                self._hand_over(splitter.content, messages)
            elif kind == CONTROL:
                self._hand_over_control(splitter.content, messages)
            elif (message := self._single(splitter.content, kind == TEXT)) is not None:
                messages.append(message)
            if self._ended:
                splitter.discard()
            kind = splitter.next(self._joined is not None)
        self.few = splitter.count < _MANY
        return messages

    @property
    def _ended(self) -> bool:
        """True if what the peer sends is not looked at any more."""
        return self.failed is not None or self.peer_closed is not None

    def _hand_over(self, data: bytes, messages: list[Message]) -> None:
        """Let the protocol read `data`, and append the messages that are complete with it."""
        protocol = self._protocol
        protocol.receive_data(data)
        _forget_tracebacks(protocol.parser_exc)
        self._speaks = True
        frames: list[Any] = protocol.events_received()
        for frame in frames:
            opcode = frame.opcode
            if opcode is _IS_TEXT or opcode is _IS_BINARY or opcode is _IS_CONT:
                message = self._message(frame)
                if message is not None:
                    messages.append(message)
                elif self.failed is not None:
                    return
            elif opcode is _IS_CLOSE:
                self.peer_closed = (int(protocol.close_rcvd.code), protocol.close_rcvd.reason)
        if protocol.parser_exc is not None:
            self._note_failure()

    def _hand_over_control(self, data: bytes, messages: list[Message]) -> None:
        """Let the protocol read `data`, which is of control frames: no limit of a message is theirs."""
        protocol = self._protocol
        limits = protocol.max_message_size, protocol.max_fragment_size
        protocol.max_message_size = protocol.max_fragment_size = None
        self._hand_over(data, messages)
        protocol.max_message_size, protocol.max_fragment_size = limits

    def data_to_send(self) -> list[bytes]:
        """Return what is to be sent."""
        if not self._speaks:
            return []
        self._speaks = False
        # an empty piece stands for the end of the connection, which is the caller's
        return [bytes(piece) for piece in self._protocol.data_to_send() if piece]

    def message(self, message: Message) -> tuple[bytes, bytes]:
        """Return what sends `message`: a piece, and what follows it if that is large enough not to be copied. Raise
        UnicodeEncodeError if it has a lone surrogate."""
        is_text = isinstance(message, str)
        payload = message.encode() if isinstance(message, str) else message
        compression = self._compression
        if compression is not None:
            payload = bytes(compression.encode(_frame(is_text, payload)).data)
        start = head(is_text, compression is not None, len(payload))
        return (start, payload) if len(payload) >= LARGE else (start + payload, b"")

    def ping(self) -> None:
        """Make a ping."""
        self._protocol.send_ping(b"")
        self._speaks = True

    def close(self, code: int, reason: str) -> None:
        """Begin or answer the closing handshake. Raise ResponseError for a code that no close frame may have, or a
        reason that is too long."""
        if not (1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code <= 4999):
            raise ResponseError(f"a websocket cannot be closed with the code {code!r}: 1000, or 3000 to 4999")
        if len(reason.encode()) > _LONGEST_REASON:
            raise ResponseError(f"the reason of a close has at most {_LONGEST_REASON} bytes")
        self._protocol.send_close(code, reason)
        self._speaks = True

    def release(self) -> None:
        """Note that the websocket has ended, or will never begin: nothing is fed any more. Its parser, a suspended
        generator, refers to the protocol, whose memory for compression is much, and invisible to the garbage collector.
        """
        self._protocol.parser.close()

    def _fail(self, code: int, reason: str) -> None:
        self._protocol.fail(code, reason)
        self._speaks = True
        self._note_failure()

    def _note_failure(self) -> None:
        # if several things are wrong, the close frame says which the protocol has found first
        sent = self._protocol.close_sent
        self.failed = (int(sent.code), sent.reason)

    def _message(self, frame: Any) -> Message | None:
        """Return the message that `frame` completes. None if it does not, or if the message is refused."""
        if frame.opcode is not _IS_CONT:
            if frame.fin:
                return self._whole(frame.data, frame.opcode is _IS_TEXT)
            self._joined = bytearray()
            self._pieces = 0
            self._check = codecs.getincrementaldecoder("utf-8")() if frame.opcode is _IS_TEXT else None
        joined = self._joined
        assert joined is not None
        joined += frame.data
        self._pieces += 1
        if self._pieces > MOST_PIECES:
            self._fail(1008, f"a message in more than {MOST_PIECES} pieces")
            return None
        if self._check is not None:
            try:
                self._check.decode(frame.data, frame.fin)
            except UnicodeDecodeError as error:
                self._fail(1007, error.reason)
                return None
        if not frame.fin:
            return None
        self._joined = None
        return self._whole(bytes(joined), self._check is not None)

    def _single(self, data: bytes, is_text: bool) -> Message | None:
        """Return the message of the splitter's `data`. None if it is refused, as the protocol refuses it."""
        if not self._splitter.compressed:
            return self._whole(data, is_text)
        try:
            frame = self._compression.decode(_frame(is_text, data, True), max_size=self._most)
        except ProtocolError as error:
            self._fail(1002, str(error))
            return None
        except PayloadTooBig as error:
            self._fail(1009, str(error))
            return None
        return self._whole(frame.data, is_text)

    def _whole(self, data: Any, is_text: bool) -> Message | None:
        if not is_text:
            return bytes(data)
        try:
            return str(data, "utf-8")
        except UnicodeDecodeError as error:
            self._fail(1007, error.reason)
            return None


_WINDOW: Final = "server_max_window_bits"


class _Deflate:
    """Compression as `websockets` offers it to a server, but declined if the client wants a window of 256 bytes, which
    zlib does not have: `websockets` notices that itself since 17.2. A client that has not named our window is not told
    of it: RFC 7692, 7.1.2.1, would allow that, but some clients fail, and any can read what a smaller one made."""

    def __init__(self) -> None:
        self._factory: Any = ServerPerMessageDeflateFactory(
            server_max_window_bits=12, client_max_window_bits=12, compress_settings={"memLevel": 5}
        )
        self.name = self._factory.name

    def process_request_params(self, params: Any, accepted_extensions: Any) -> Any:
        try:
            agreed, deflate = self._factory.process_request_params(params, accepted_extensions)
        except ValueError as error:
            raise NegotiationError(str(error)) from error
        named = any(name == _WINDOW for name, _ in params)
        return [parameter for parameter in agreed if named or parameter[0] != _WINDOW], deflate


def negotiate(request: Request, limits: Limits, compression: bool) -> Frames:
    """Return the frames of the websocket that `request` asks for. Raise UpgradeRefused for an invalid handshake."""
    factories: list[Any] = [_Deflate()] if compression else []
    sizes = (_size(limits.max_message), _size(limits.max_frame))
    most = min(size for size in (*sizes, ENDLESS) if size is not None)
    protocol: Any = ServerProtocol(state=OPEN, extensions=factories, max_size=sizes, logger=_log)
    headers = _handshake_headers(request)
    response = protocol.accept(Handshake(request.path_and_query.decode("ascii"), headers))
    if response.status_code != 101:
        protocol.parser.close()
        _forget_tracebacks(protocol.handshake_exc)
        raise _refused(response)
    offered = [
        part.strip() for text in headers.get_all("Sec-WebSocket-Protocol") for part in text.split(",") if part.strip()
    ]
    found = response.headers
    return Frames(protocol, found["Sec-WebSocket-Accept"], found.get("Sec-WebSocket-Extensions", ""), offered, most)


def _handshake_headers(request: Request) -> Any:
    """Return the fields of `request` as the protocol wants them: a websocket as the only protocol of Upgrade, which may
    be one of several (RFC 6455, 4.2.1)."""
    headers = Headers()
    for name, value in request.headers:
        if name != b"upgrade":
            headers[name.decode("ascii")] = value.decode("latin-1")
    if request.offers(b"websocket"):
        headers["upgrade"] = "websocket"
    return headers


def _refused(response: Any) -> UpgradeRefused:
    """Make the error of a handshake that the protocol answers with `response`."""
    fields = [(b"sec-websocket-version", b"13")]
    for key, text in response.headers.raw_items():
        if key.lower() not in _FRAMING:
            fields.append((key.lower().encode("ascii"), text.encode("latin-1")))
    return UpgradeRefused(response.status_code, fields, response.body)


def _frame(is_text: bool, data: bytes, compressed: bool = False) -> Any:
    """Return a frame that is a whole message."""
    return Frame(_IS_TEXT if is_text else _IS_BINARY, data, True, compressed)


def _forget_tracebacks(error: Any) -> None:
    """Break the reference cycles of an error that the protocol has just kept: its frames, and those of its contexts,
    refer to the protocol. The last context may be an error that the application handles meanwhile, and is left whole.
    """
    handled = sys.exception()
    while error is not None and error is not handled:
        context = error.__context__
        error.__traceback__ = error.__context__ = None
        error = context


def _size(limit: float) -> int | None:
    return None if limit == INF else int(limit)
