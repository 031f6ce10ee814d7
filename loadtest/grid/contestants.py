"""The contestants, as data: how each is started, with its defaults and with its best settings, each with its reason.

Defaults are those of the server, or of Debian's package where a server is nothing without a file. The best settings are
what the server's documentation offers against slow clients, all to the same measure where they are numbers: 10 seconds
for a head, 30 for a body and for a response, 15 between requests. Settings that tell clients by their address are left
out: here the honest ones have the attackers' address. A text has @PORT@, @UPSTREAM@ (the port of the application behind
a proxy), @DIRECTORY@ (a new one) and @OPTIONS@.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Settings = Literal["defaults", "best"]
Needs = Literal["python", "program", "go"]


@dataclass(frozen=True)
class Setting:
    """One of the best settings: as it is written, and why."""

    text: str
    reason: str


@dataclass(frozen=True)
class Server:
    """A server. `command` and `config`, a file's text, are templates.

    `needs` tells how `package` is looked for: a distribution of Python, a program, or Go's toolchain. `debian` has the
    program's package. `proxy`: it needs an application behind it. `best` are its best settings; `note` is a remark.
    """

    name: str
    command: str
    best: tuple[Setting, ...]
    package: str
    needs: Needs = "python"
    debian: str = ""
    config: str = ""
    proxy: bool = False
    note: str = ""


@dataclass(frozen=True)
class Contestant:
    """A server with its defaults or with its best settings."""

    server: Server
    settings: Settings

    @property
    def name(self) -> str:
        """What the command line and the files of results call it."""
        return f"{self.server.name}-{self.settings}".replace(" ", "-")

    @property
    def options(self) -> tuple[Setting, ...]:
        """The settings beside the defaults."""
        return self.server.best if self.settings == "best" else ()


_ASGI: Final = "loadtest.grid.served:asgi"
_WSGI: Final = "loadtest.grid.served:wsgi"
_OURS: Final = f"@PYTHON@ -m deadlined serve {_ASGI} --no-access-log --port @PORT@ @OPTIONS@"
_HYPERCORN: Final = f"@PYTHON@ -m @MODULE@ --bind 127.0.0.1:@PORT@ @OPTIONS@ {_ASGI}"
_GUNICORN: Final = "@PYTHON@ -m gunicorn --bind 127.0.0.1:@PORT@ --worker-class"
_PROGRAM: Final = "@PYTHON@ -m loadtest.grid.served"
# the application behind proxies
UPSTREAM: Final = f"@PYTHON@ -m uvicorn {_ASGI} --no-access-log --port @PORT@ --timeout-keep-alive 90"

_OUR_BEST: Final = (
    Setting("--write 30s", "a bound for the whole response, which is off because streams are meant to last"),
    Setting("--idle 15s", "less than the 75 s that load balancers expect"),
)
_HYPERCORN_BEST: Final = (
    Setting("--read-timeout 10", "ends what stalls; off by default"),
    Setting("--keep-alive 5", "its default, which also bounds the head"),
    Setting("--websocket-ping-interval 20", "pings are off by default"),
)

_NGINX: Final = """\
daemon off;
user root;
pid @DIRECTORY@/nginx.pid;
error_log @DIRECTORY@/error.log;
worker_processes auto;
events { worker_connections 4096; }
http {
  access_log off;
  sendfile on;
  tcp_nopush on;
  client_body_temp_path @DIRECTORY@/body;
  proxy_temp_path @DIRECTORY@/proxy;
  fastcgi_temp_path @DIRECTORY@/fastcgi;
  uwsgi_temp_path @DIRECTORY@/uwsgi;
  scgi_temp_path @DIRECTORY@/scgi;
  map $http_upgrade $connection_upgrade { default upgrade; '' ''; }
  @OPTIONS@
  server {
    listen 127.0.0.1:@PORT@;
    location / {
      proxy_pass http://127.0.0.1:@UPSTREAM@;
      proxy_http_version 1.1;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection $connection_upgrade;
    }
  }
}
"""
_HAPROXY: Final = """\
defaults
  mode http
  timeout connect 5000
  timeout client 50000
  timeout server 50000
  @OPTIONS@
frontend grid
  bind 127.0.0.1:@PORT@
  default_backend application
backend application
  server application 127.0.0.1:@UPSTREAM@
"""
_CADDY: Final = """\
{
  admin off
  auto_https off
  servers {
    timeouts {
      @OPTIONS@
    }
  }
}
http://:@PORT@ {
  bind 127.0.0.1
  reverse_proxy 127.0.0.1:@UPSTREAM@
}
"""
_MODULES: Final = "/usr/lib/apache2/modules"
_APACHE: Final = f"""\
ServerRoot @DIRECTORY@
ServerName localhost
PidFile @DIRECTORY@/pid
DefaultRuntimeDir @DIRECTORY@
Mutex file:@DIRECTORY@ default
ErrorLog @DIRECTORY@/error.log
Listen 127.0.0.1:@PORT@
User www-data
Group www-data
LoadModule mpm_event_module {_MODULES}/mod_mpm_event.so
LoadModule authz_core_module {_MODULES}/mod_authz_core.so
LoadModule reqtimeout_module {_MODULES}/mod_reqtimeout.so
LoadModule proxy_module {_MODULES}/mod_proxy.so
LoadModule proxy_http_module {_MODULES}/mod_proxy_http.so
StartServers 2
MinSpareThreads 25
MaxSpareThreads 75
ThreadLimit 64
ThreadsPerChild 25
MaxRequestWorkers 150
Timeout 300
KeepAliveTimeout 5
RequestReadTimeout header=20-40,minrate=500
RequestReadTimeout body=10,minrate=500
@OPTIONS@
ProxyPass / http://127.0.0.1:@UPSTREAM@/ upgrade=websocket
"""

SERVERS: Final = (
    Server("deadlined", _OURS, _OUR_BEST, "deadlined", note="on trio"),
    Server("deadlined uvloop", f"{_OURS} --loop uvloop", _OUR_BEST, "deadlined"),
    Server(
        "uvicorn",
        f"@PYTHON@ -m uvicorn {_ASGI} --no-access-log --port @PORT@ @OPTIONS@",
        (
            Setting("--timeout-keep-alive 5", "its default; it has no timeout for anything else"),
            Setting("--limit-concurrency 1000", "a bound for memory: 503 above it, also for honest clients"),
        ),
        "uvicorn",
        note="its documentation puts nginx in front",
    ),
    Server("hypercorn", _HYPERCORN.replace("@MODULE@", "hypercorn"), _HYPERCORN_BEST, "hypercorn"),
    Server("anycorn", _HYPERCORN.replace("@MODULE@", "anycorn"), _HYPERCORN_BEST, "anycorn"),
    Server(
        "gunicorn sync",
        f"{_GUNICORN} sync @OPTIONS@ {_WSGI}",
        (
            Setting("--workers 5", "twice the cores and one; each serves one connection at a time"),
            Setting("--timeout 10", "kills a worker that waits for its client for longer"),
        ),
        "gunicorn",
        note="its documentation says that it must stand behind a proxy that buffers",
    ),
    Server(
        "gunicorn gthread",
        f"{_GUNICORN} gthread @OPTIONS@ {_WSGI}",
        (
            Setting("--threads 64", "a client that stalls in a body holds a thread"),
            Setting("--workers 5", "twice the cores and one"),
        ),
        "gunicorn",
    ),
    Server(
        "gunicorn asgi",
        f"{_GUNICORN} asgi @OPTIONS@ {_ASGI}",
        (Setting("--timeout 10", "also the longest wait for a piece of a body; 30 by default"),),
        "gunicorn",
    ),
    Server(
        "granian",
        f"@PYTHON@ -m granian --interface asgi --host 127.0.0.1 --port @PORT@ @OPTIONS@ {_ASGI}",
        (Setting("--http1-header-read-timeout 10000", "30 s by default; it has no timeout for anything else"),),
        "granian",
    ),
    Server(
        "daphne",
        f"@PYTHON@ -m daphne -b 127.0.0.1 -p @PORT@ @OPTIONS@ {_ASGI}",
        (
            Setting("--http-timeout 30", "a bound for the whole of a request; off by default"),
            Setting("--ping-interval 20 --ping-timeout 20", "20 and 30 by default"),
        ),
        "daphne",
    ),
    Server(
        "aiohttp",
        f"{_PROGRAM} aiohttp @PORT@ @OPTIONS@",
        (
            Setting("keepalive_timeout=15", "75 s by default"),
            Setting("heartbeat=20", "pings of websockets are off by default"),
        ),
        "aiohttp",
        note="its documentation puts nginx in front",
    ),
    Server(
        "sanic",
        f"{_PROGRAM} sanic @PORT@ @OPTIONS@",
        (
            Setting("REQUEST_TIMEOUT=10", "60 s by default"),
            Setting("RESPONSE_TIMEOUT=30", "60 s by default"),
            Setting("KEEP_ALIVE_TIMEOUT=15", "120 s by default"),
        ),
        "sanic",
        note="its websockets have a path of their own, which is not checked",
    ),
    Server(
        "waitress",
        f"@PYTHON@ -m waitress --listen=127.0.0.1:@PORT@ @OPTIONS@ {_WSGI}",
        (
            Setting("--channel-timeout=10", "ends what stalls; 120 s by default"),
            Setting("--cleanup-interval=1", "how often it looks for these; 30 s by default"),
            Setting("--connection-limit=4000", "100 by default, and those beyond wait"),
            Setting("--asyncore-use-poll", "for more than 1,024 descriptors"),
        ),
        "waitress",
    ),
    Server(
        "cheroot",
        f"@PYTHON@ -m cheroot --bind 127.0.0.1:@PORT@ @OPTIONS@ {_WSGI}",
        (
            Setting("--threads 64", "a client that stalls in a request holds a thread; 10 by default"),
            Setting("--timeout 10", "its default, for every wait"),
        ),
        "cheroot",
    ),
    Server(
        "fastpysgi",
        f"{_PROGRAM} fastpysgi @PORT@ @OPTIONS@",
        (
            Setting("read_req_timeout=10000", "between two pieces of a request; off by default"),
            Setting("curr_req_timeout=30000", "for a whole request; off by default"),
            Setting("next_req_timeout=15000", "between requests; off by default"),
        ),
        "fastpysgi",
    ),
    Server(
        "nginx",
        "nginx -p @DIRECTORY@ -c @CONFIG@",
        (
            Setting("client_header_timeout 10s;", "60 s by default"),
            Setting("client_body_timeout 10s;", "between two reads; 60 s by default"),
            Setting("send_timeout 10s;", "between two writes; 60 s by default"),
            Setting("keepalive_timeout 15s;", "75 s by default"),
            Setting("reset_timedout_connection on;", "frees what waits to be sent"),
        ),
        "nginx",
        "program",
        "nginx",
        _NGINX,
        proxy=True,
        note="more connections than Debian's 768 in both, of which a proxy needs two for a client",
    ),
    Server(
        "haproxy",
        "haproxy -db -f @CONFIG@",
        (
            Setting("timeout http-request 10s", "for a whole head; none of its own by default"),
            Setting("option http-buffer-request", "waits for the body, too, for as long"),
            Setting("timeout http-keep-alive 15s", "between requests"),
            Setting("timeout client 30s", "between two pieces of anything else; 50 s in Debian's file"),
        ),
        "haproxy",
        "program",
        "haproxy",
        _HAPROXY,
        proxy=True,
        note="its bound for bodies holds until its buffer of 16 kB is full",
    ),
    Server(
        "caddy",
        "caddy run --adapter caddyfile --config @CONFIG@",
        (
            Setting("read_header 10s", "off by default"),
            Setting("read_body 30s", "off by default"),
            Setting("write 30s", "off by default"),
            Setting("idle 15s", "5 minutes by default"),
        ),
        "caddy",
        "program",
        "caddy",
        _CADDY,
        proxy=True,
    ),
    Server(
        "apache",
        "apache2 -D FOREGROUND -f @CONFIG@",
        (
            Setting("RequestReadTimeout header=10-20,MinRate=500", "20 to 40 s in Debian's file"),
            Setting("RequestReadTimeout body=10-30,MinRate=500", "without a bound above in Debian's file"),
            Setting("Timeout 10", "300 s in Debian's file"),
            Setting("ServerLimit 40", "for more workers"),
            Setting("MaxRequestWorkers 1000", "a client that stalls in a request holds one; 150 in Debian's file"),
        ),
        "apache2",
        "program",
        "apache2",
        _APACHE,
        proxy=True,
        note="MPM event",
    ),
    Server(
        "node",
        "node @HERE@/served.js @PORT@ @OPTIONS@",
        (
            Setting("headersTimeout=10000", "60 s by default"),
            Setting("requestTimeout=30000", "300 s by default"),
            Setting("connectionsCheckingInterval=1000", "how often it looks for these; 30 s by default"),
            Setting("keepAliveTimeout=5000", "its default"),
            Setting("timeout=30000", "of a socket on which nothing happens; off by default"),
        ),
        "node",
        "program",
        "nodejs",
    ),
    Server(
        "go",
        "@GO@ -port @PORT@ @OPTIONS@",
        (
            Setting("-read-header 10s", "ReadHeaderTimeout; off by default"),
            Setting("-read 30s", "ReadTimeout, for a whole request; off by default"),
            Setting("-write 30s", "WriteTimeout, for a whole response; off by default"),
            Setting("-idle 15s", "IdleTimeout; off by default"),
        ),
        "go",
        "go",
    ),
)
CONTESTANTS: Final = {
    contestant.name: contestant
    for server in SERVERS
    for contestant in (Contestant(server, "defaults"), Contestant(server, "best"))
}
