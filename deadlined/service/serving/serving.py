"""The commands that serve: prepare the process and what it serves, serve, and return the exit code."""

from __future__ import annotations

import atexit
import os
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...http import head_parser
from ...runtime import event_loop_runs, require_loop, run
from ...terminal import START
from ..config import ServeConfig, Sources
from ..config.checking import wrong_values
from ..config.conflicts import conflicts
from ..config.rereading import Configuration, context_of, warn_of_validity
from ..content.content import Content
from ..errors import WRONG_ARGUMENTS, StartupError, cannot_start
from ..listening.listening import with_chosen_ports
from ..log.logs import Log, open_log
from ..log.output import guard_standard_streams
from ..process.file_limit import raise_file_limit, require_file_limit
from ..process.hangup import Hangup
from ..process.notify import Notifier, notifier
from ..process.signals import ignore_stops
from ..workers.link import Link
from .administered import admin_on, bind_admin, overseer_for
from .running import Parent, Service, is_first
from .starting import Starting
from .voice import Voice, voice_of

if TYPE_CHECKING:
    from ..admin.address import AdminSockets


def serve(config: ServeConfig, sources: Sources | None = None) -> int:
    """Do what `deadlined.service.serve` does."""
    _require_main_thread()
    if problems := wrong_values(config) or conflicts(config):
        raise StartupError("; ".join(problems), WRONG_ARGUMENTS)
    # before the application is imported: what it registers itself is called before this, and may be interrupted
    atexit.register(ignore_stops)
    configuration = Configuration(config, sources)
    _load_websockets()
    # before the application is imported: its children must not have the variables
    alone = _Role(notifier(os.environ))
    out = guard_standard_streams()
    layout, log = open_log(config.log_format, config.log_level, out)
    with _failure_logged(log):
        require_file_limit()
        # a supervisor needs descriptors, too
        raise_file_limit()
        role = _role(configuration, log, alone)
    if isinstance(role, int):
        return role
    config = configuration.config
    if role is not alone:
        layout, log = open_log(config.log_format, config.log_level, out, role.link.number if role.link else None)
    return _begin(configuration, voice_of(config, layout, log, out), role)


@dataclass(frozen=True)
class _Role:
    """What this process is in its service. `notifier`: tells the service manager what it does. `link`: of a worker
    process. `inherited`: the sockets of the admin listener, if this process need not bind them. `supervised`: another
    process ends this one."""

    notifier: Notifier
    link: Link | None = None
    inherited: AdminSockets | None = None
    supervised: bool = False


def _role(configuration: Configuration, log: Log, alone: _Role) -> _Role | int:
    """Return the role of this process, `alone` unless the service has several. The process that has started the others
    returns only at the end of the service, with the exit code."""
    config = configuration.config
    if config.workers > 1:
        link = _supervise(configuration, log, alone.notifier)
        return link if isinstance(link, int) else _Role(Notifier(), link, supervised=True)
    if config.reload:
        from .restarting import Reloader

        try:
            reloader = Reloader(config, log, alone.notifier)
        except OSError as error:
            raise cannot_start("the parent of --reload", error) from None
        reloaded = reloader.run()
        if isinstance(reloaded, int):
            return reloaded
        configuration.config = reloaded
        return _Role(reloader.serving.notifier, inherited=reloader.admin, supervised=True)
    return alone


def _begin(configuration: Configuration, voice: Voice, role: _Role) -> int:
    """Serve, and return the exit code. If the service is stopped before it serves, or cannot start, the log says so."""
    hangup = Hangup(supervised=role.supervised)
    starting = Starting(hangup.before, supervised=role.supervised)
    log = voice.log
    try:
        START.release()
        with _failure_logged(log):
            return _serve(configuration, voice, Parent(role.link, hangup, role.notifier, starting), role.inherited)
    except KeyboardInterrupt:
        if starting.has_served:
            raise
        ignore_stops()
        log("stopped before it served", signal=starting.stopped_by)
        starting.end_at_next_signal()
        return 0
    finally:
        if role.link is not None:
            role.link.close()


@contextmanager
def _failure_logged(log: Log) -> Iterator[None]:
    """Log a StartupError of the block, for a log that is collected; the command says it on stderr."""
    try:
        yield
    except StartupError as error:
        details = {"exception": error.details} if error.details else {}
        log("startup failed", level="error", why=str(error), exit_code=error.exit_code, **details)
        raise


def _require_main_thread() -> None:
    """Raise RuntimeError where an event loop runs, or signals cannot be handled."""
    if event_loop_runs():
        raise RuntimeError(
            "deadlined.service.serve runs an event loop of its own, and one runs here already: "
            "await deadlined.asgi.serve(app) in that one"
        )
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(
            "deadlined.service.serve handles signals, which Python allows in the main thread only: "
            "run deadlined.asgi.serve(app) in an event loop of this thread"
        )


def _load_websockets() -> None:
    """Load what serves websockets, if it is installed, for all processes that are forked: the first websocket would
    block the event loop meanwhile, and fail where no descriptor is left to read a file."""
    # what is wrong with it is the affair of the first websocket
    with suppress(Exception):
        from ...http.wire import frames  # noqa: F401


def _supervise(configuration: Configuration, log: Log, manager: Notifier) -> Link | int:
    """Be the supervisor of worker processes. Returns the exit code, and in each worker process its link."""
    # most services have one process, and need not load this
    from ..listening.free_port import free_port
    from ..workers.slots import Slots
    from ..workers.supervisor import Supervisor

    config = configuration.config = with_chosen_ports(configuration.config, free_port)
    slots = Slots(config, config.workers)
    try:
        admin = admin_on(bind_admin(config.admin, config.admin_token_file), config, log)
        supervisor = Supervisor(configuration, slots, log, overseer_for(admin, log), manager)
    except OSError as error:
        slots.close()
        raise cannot_start("the supervisor", error) from None
    except BaseException:
        slots.close()
        raise
    return supervisor.run()


def _serve(configuration: Configuration, voice: Voice, parent: Parent, inherited: AdminSockets | None) -> int:
    """Serve in this process until a signal has drained it, and return the exit code. `inherited`: the sockets of the
    admin listener, if this process need not bind them."""
    config = configuration.config
    content = _content(config, voice.log, parent.starting)
    context = context_of(config)
    if is_first(parent.link):
        warn_of_validity(config, voice.log)
    _require_parser(config.http)
    _require_loop(config.loop)
    admin = None
    # of several processes, none serves the listener itself
    if parent.link is None:
        admin = admin_on(inherited or bind_admin(config.admin, config.admin_token_file), config, voice.log)
    os.environ["DEADLINED_QUEUE"] = config.queue
    os.environ["DEADLINED_PRECISE"] = "1" if config.precise else "0"
    try:
        service = Service(configuration, voice, parent, content, admin)
        with parent.starting.around_run():
            _run(config.loop, service, context)
        return service.exit_code
    except* StartupError as group:
        raise _first(group) from None
    except* KeyboardInterrupt:
        # Ctrl-C, or SIGTERM, before the Stopper had the signals, in whichever task it arrived
        raise KeyboardInterrupt from None


def _run(loop: str, service: Service, context: ssl.SSLContext | None) -> None:
    """Run the service in an event loop. StartupError if that cannot be made, for lack of descriptors for example."""
    try:
        run(loop, service.run, context)
    except OSError as error:
        if service.has_begun:
            raise
        raise cannot_start("the event loop", error) from None


def _content(config: ServeConfig, log: Log, starting: Starting) -> Content:
    """Return what is served. StartupError if an application cannot be imported."""
    # each loads what others do not need
    if config.command:
        from ..content.proxied import Command

        return Command(config, log)
    if config.upstream:
        from ..content.proxied import Upstreams

        return Upstreams(config)
    from ..content.application import Application

    return Application(config, log, starting.keep_signals)


def _require_parser(name: str) -> None:
    try:
        head_parser(name)
    except ImportError:
        hint = "pip install 'deadlined[fast]', or choose --http h11"
        raise StartupError(f"--http {name}: {name} is not installed; {hint}", WRONG_ARGUMENTS) from None


def _require_loop(name: str) -> None:
    try:
        require_loop(name)
    except ImportError:
        hint = "pip install 'deadlined[fast]', or choose --loop asyncio"
        raise StartupError(f"--loop {name}: {name} is not installed; {hint}", WRONG_ARGUMENTS) from None


def _first(group: BaseExceptionGroup[StartupError]) -> StartupError:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
