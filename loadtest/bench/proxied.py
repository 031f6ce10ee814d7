"""A page through a proxy: CPU time of the proxy per request, beside nginx's, and a server's that answers itself.

Facts      A proxied request is two: one from the client, one to the upstream. Here client and upstream share a core,
           and the proxy has the other.
Hazard     Together, client and upstream may need more of their core than the proxy of its own: then its rate is theirs.
Answer     What counts is CPU time per request, of all threads and processes of the proxy; how many requests a core can
           pass on follows from that. A proxy that waits gets fewer requests at once, which costs it more, not less.
           The upstream is nginx, which answers from its configuration. nginx as a proxy writes no field that ours does
           not write, and keeps its connections to the upstream, which is not its default. Timeouts are on.
Cost       The rate is context.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Self

from .. import apps
from ..servers import Server, running, tool
from . import builds, processes
from .contest import Benchmark, Contestant, table
from .web_servers import CASES, MAIN, PAGES, await_answer, free_port, load

# cases of `http`
_CASES: Final = (MAIN, "a browser's head")

_TABLE: Final = table("proxies.toml")
# the commands of ours, with {upstream} and {app}
_COMMANDS: Final[Mapping[str, str]] = _TABLE["commands"]
# the configurations of nginx, with @UPSTREAM@, @PORT@, @BODY@ and @DIRECTORY@
_NGINX: Final[Mapping[str, str]] = _TABLE["nginx"]


class Proxied(Benchmark):
    """The benchmark `proxied`. Each measurement starts a proxy and its upstream."""

    def __init__(self, seconds: int = 3, cases: Sequence[str] = _CASES) -> None:
        super().__init__("proxied", cases)
        self._seconds = seconds

    def contestants(self) -> Sequence[Contestant]:
        tool("wrk")
        tool("nginx")  # nothing can be measured without an upstream
        ours = [Contestant(name, builds.missing(name)) for name in _COMMANDS]
        return [*ours, Contestant("nginx")]

    def saturates(self, case: str) -> bool:
        return False

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        asked = CASES[case]
        with _nginx("upstream", 0, processes.CLIENT_CORE) as upstream, _proxy(contestant, upstream.port) as server:
            load(server, asked, 1)  # it is warm now
            done = load(server, asked, self._seconds)
        return {"cpu": done.cpu / done.number * 1e6, "rate": done.rate, "busy": done.busy}

    def quick(self) -> Self:
        return type(self)(seconds=1, cases=(MAIN,))


@contextmanager
def _proxy(contestant: str, upstream: int) -> Iterator[Server]:
    """Start this contestant, and yield it when it has answered correctly."""
    if contestant == "nginx":
        with _nginx("proxy", upstream, processes.SERVER_CORE) as server:
            yield server
        return
    command = [sys.executable, "-m", *_COMMANDS[contestant].format(upstream=upstream, app=PAGES).split()]
    around = builds.surroundings(contestant, neutral=True)
    with running(command, core=processes.SERVER_CORE, environment=around) as server:
        await_answer(server, CASES[MAIN])
        yield server


@contextmanager
def _nginx(configuration: str, upstream: int, core: int) -> Iterator[Server]:
    """Start nginx, and yield it when it has answered correctly."""
    folder, port = processes.scratch() / f"nginx-{configuration}", free_port()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    words = {"@UPSTREAM@": upstream, "@PORT@": port, "@BODY@": apps.PAGES["/"][1].decode(), "@DIRECTORY@": folder}
    text = _NGINX[configuration]
    for word, meaning in words.items():
        text = text.replace(word, str(meaning))
    (folder / "nginx.conf").write_text(text, encoding="utf-8")
    # it does not say where it listens
    script = f"echo http://127.0.0.1:{port}; exec {tool('nginx')} -p {folder} -c {folder}/nginx.conf -e {folder}/errors"
    with running(["sh", "-c", script], core=core) as server:
        await_answer(server, CASES[MAIN])
        yield server


BENCHMARK = Proxied()
