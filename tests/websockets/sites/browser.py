"""A page that opens websockets to the server that it came from, and shows what it has seen; plain ASGI."""

from __future__ import annotations

from .plain import Message, Receive, Send, accepted, echo

PAGE = """<!doctype html>
<meta charset="utf-8">
<title>websockets</title>
<p id="seen"></p>
<script>
// Open a websocket, call `step(socket, number of the event, data)` when it opens and for each message, and return all
// that happened once it is closed.
function talk(path, protocols, step) {
  return new Promise(resolve => {
    const seen = [], socket = new WebSocket(`ws://${location.host}${path}`, protocols);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => { seen.push(["open", socket.protocol, socket.extensions]); step(socket, 0); };
    socket.onmessage = ({data}) => {
      const text = typeof data === "string";
      seen.push(text ? ["text", data] : ["binary", data.byteLength, new Uint8Array(data).reduce((a, b) => a + b, 0)]);
      step(socket, seen.length - 1);
    };
    socket.onerror = () => seen.push(["error"]);
    socket.onclose = ({code, reason, wasClean}) => { seen.push(["close", code, reason, wasClean]); resolve(seen); };
  });
}
const steps = [
  socket => socket.send("κόσμε"),
  socket => socket.send(new Uint8Array(200000).fill(3)),
  socket => socket.send(""),
  socket => socket.send(new Blob(["x".repeat(70000)])),
  socket => socket.close(4001, "ça suffit"),
];
async function main() {
  document.cookie = "visits=3";
  const seen = {
    echo: await talk("/echo", [], (socket, number) => steps[number](socket)),
    leave: await talk("/leave", ["first", "second"], () => {}),
    refused: await talk("/refused", [], () => {}),
    many: (await Promise.all([...Array(20)].map((_, n) => talk(`/once?${n}`, [], () => {})))).map(each => each[1][1]),
  };
  document.getElementById("seen").textContent = JSON.stringify(seen);
}
window.finished = main();
</script>
"""


async def leave(scope: Message, receive: Receive, send: Send) -> None:
    """Choose the second protocol, tell the cookie and the origin, and close."""
    await accepted(receive, send, subprotocol=scope["subprotocols"][1])
    fields = dict(scope["headers"])
    origin = fields[b"origin"].decode().rpartition(":")[0]
    await send({"type": "websocket.send", "text": f"{fields[b'cookie'].decode()} of {origin}"})
    await send({"type": "websocket.close", "code": 4002, "reason": "café fermé"})


async def refused(scope: Message, receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "websocket.close"})


async def once(scope: Message, receive: Receive, send: Send) -> None:
    """Tell the query, and close."""
    await accepted(receive, send)
    await send({"type": "websocket.send", "text": scope["query_string"].decode()})
    await send({"type": "websocket.close"})


PATHS = {"/echo": echo, "/leave": leave, "/refused": refused, "/once": once}


async def app(scope: Message, receive: Receive, send: Send) -> None:
    """Answer requests with the page, and websockets by their path."""
    if scope["type"] == "lifespan":
        raise NotImplementedError
    if scope["type"] == "websocket":
        await PATHS[scope["path"]](scope, receive, send)
        return
    found = scope["path"] == "/"
    headers = [(b"content-type", b"text/html; charset=utf-8")]
    await send({"type": "http.response.start", "status": 200 if found else 404, "headers": headers})
    await send({"type": "http.response.body", "body": PAGE.encode() if found else b""})
