"""Responses as the load test's clients read them: counted, with the last one's status and its moment."""

from __future__ import annotations

import httptools

# bytes of a head, and of the interim responses before it: no server needs so many, and a parser keeps them all
_HEAD = 1 << 20


class Answers:
    """The responses of one connection.

    `count`: complete ones, and `size`: bytes of all. `status`, `fields`: of the last that began, 0 and empty before;
    `began`: the time given with the bytes in which its head ended. `complete`: no response is unfinished, and there was
    one. `keeps_alive`: the server will take another request. `upgraded`: what follows is not HTTP, and `rest` has come
    of it already. The methods `on_...` are called by the parser.
    """

    def __init__(self) -> None:
        self.count = self.size = self.status = self._head = 0
        self.fields: dict[str, str] = {}
        self.began = 0.0
        # `_has_head`: that of the response that is unfinished, unless it is an interim one
        self.complete = self._has_head = False
        self.keeps_alive = True
        self.upgraded = False
        self.rest = b""
        self._now = 0.0
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes, now: float) -> None:
        """Take what was received at `now`. httptools.HttpParserError if it is no HTTP, or a head without end."""
        self.size += len(data)
        if self.upgraded:
            return
        self._head += 0 if self._has_head else len(data)
        if self._head > _HEAD:
            raise httptools.HttpParserError(f"a head of more than {_HEAD} bytes")
        self._now = now
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self.upgraded = True
            self.rest = data[upgrade.args[0] :]

    def end(self) -> None:
        """Take the end of the connection, which is also the end of a response without a length."""
        unbounded = not {"content-length", "transfer-encoding"} & self.fields.keys()
        if self._has_head and not self.complete and unbounded:
            self.complete = True
            self.keeps_alive = False
            self.count += 1

    def on_message_begin(self) -> None:
        self.complete = self._has_head = False
        self.fields = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self._has_head = self.status >= 200
        self._head = 0 if self._has_head else self._head
        self.began = self._now
        self.keeps_alive = self._parser.should_keep_alive()

    def on_message_complete(self) -> None:
        if self._has_head or self.status == 101:  # not an interim response, which the real one follows
            self.complete = True
            self.count += 1
