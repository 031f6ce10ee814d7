"""Locust's users: the attacks of `check`, the open loop of `http` and the connections of `churn`.

`loadtest/locustfile.py` is what Locust is given. One process may have thousands of users, each a greenlet over sockets
that seem to block (blocking.py). What they see goes into Locust's own statistics, which its master adds up.
"""

from __future__ import annotations

import logging
import math
import random
from argparse import Namespace
from dataclasses import replace
from itertools import cycle
from threading import Lock
from time import monotonic
from typing import Any

import gevent  # type: ignore[import-untyped,unused-ignore]
from gevent import GreenletExit
from gevent.pool import Pool  # type: ignore[import-untyped,unused-ignore]
from locust import User, constant, events, task
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment
from locust.exception import StopUser

from .blocking import NoAnswerError, Talk, follow
from .check.attacks import ATTACKS, NAMES
from .check.script import Script
from .check.scripts import Facts, crowd, scripts
from .churn.profiles import PROFILES, Act
from .target import ForbiddenTargetError, Target, UnusableTargetError, ask, resolve

_LOG = logging.getLogger(__name__)

# attacks that need no more than a URL of plain HTTP
_USUAL = "silent,slow-header,endless-header,slow-body,stalled-body,idle,half-close,pipelined"
# connections that one Honest user opens at most
_CONNECTIONS = 100
# seconds that a connection of a flood stays open
_PASSING = 0.05
# seconds after which a connection comes back that the server did not want
_AGAIN = 1.0
# what stands for a keep-alive deadline that there is not: seconds
_PERIOD = 5.0
# seconds, beside a fifth of the deadline, by which a cut may be late; by how much a cut is not yet early
_LATE, _EARLY = 2.0, 0.05


@events.init_command_line_parser.add_listener  # type: ignore[untyped-decorator,unused-ignore]
def add_options(parser: LocustArgumentParser) -> None:
    """Add our options to Locust's; its web page shows them, except for the one that permits."""
    add = parser.add_argument
    add("--attacks", default=_USUAL, env_var="LOADTEST_ATTACKS", help="Attacker: the names, with commas.")
    add("--limit", type=float, default=30.0, env_var="LOADTEST_LIMIT",
        help="Attacker: seconds for which a connection is held.")  # fmt: skip
    add("--rate", type=float, default=10.0, env_var="LOADTEST_RATE", help="Honest: requests per second of one user.")
    add(
        "--churn-profile",
        default="steady",
        choices=list(PROFILES),
        env_var="LOADTEST_PROFILE",
        help="Churner: when it acts.",
    )
    add("--deadline", type=float, default=0.0, env_var="LOADTEST_DEADLINE",
        help="Churner: the server's keep-alive deadline in seconds; 0 measures it.")  # fmt: skip
    add("--i-own-this-target", default="", env_var="LOADTEST_OWNED", include_in_web_ui=False,
        help="Names and addresses that may be attacked beside loopback, with commas.")  # fmt: skip


class Setup:
    """One test of one process: its target and options. `check`'s errors if it may not be, or cannot be, attacked."""

    def __init__(self, host: str, options: Namespace) -> None:
        self.options = options
        self.names = [name for name in options.attacks.split(",") if name]
        if unknown := set(self.names).difference(NAMES):
            raise ForbiddenTargetError(f"{', '.join(sorted(unknown))} is none of {', '.join(NAMES)}")
        if not (options.rate > 0 and options.limit > 0 and 0 <= options.deadline < math.inf):
            raise ForbiddenTargetError("--rate and --limit must be above 0, and --deadline at least 0")
        self.target: Target = resolve(host, [name for name in options.i_own_this_target.split(",") if name])
        self.facts = Facts(self.target, max(ask(self.target).size, 1), websocket=True, limit=options.limit)
        self.numbers = cycle(range(len(self.names)))
        self._measuring = Lock()
        self._deadline: float | None = options.deadline or None
        self._measured = bool(options.deadline)

    def script(self, name: str) -> Script:
        """Return what one of many connections of this attack does. One that reads nothing must poke to see its end."""
        if name != "slow-read":
            return crowd(self.facts, name)
        poked = [one for one in scripts(self.facts, frozenset({name})) if one.role == "poked"]
        return replace(poked[0], interval=0.1)

    def deadline(self) -> float | None:
        """Return the keep-alive deadline: measured by the first user, for whom the others wait; None for none."""
        with self._measuring:
            if not self._measured:
                self._deadline = follow(self.script("idle"), self.target, self.options.limit).seconds
                self._measured = True
        return self._deadline


_setup: dict[str, Setup] = {}


@events.test_start.add_listener  # type: ignore[untyped-decorator,unused-ignore]
def prepare(environment: Environment, **_: Any) -> None:
    """Resolve the target, in each process and for each test. One that may not be attacked ends the process."""
    _setup.clear()
    try:
        assert environment.parsed_options is not None
        _setup["now"] = Setup(environment.host or "", environment.parsed_options)
    except (ForbiddenTargetError, UnusableTargetError) as error:
        _LOG.error("%s", error)
        environment.process_exit_code = 2 if isinstance(error, ForbiddenTargetError) else 3
        if environment.runner is not None:
            gevent.spawn(environment.runner.quit)


class _Base(User):
    abstract = True

    def on_start(self) -> None:
        """Find the setup; without one there is nothing to do, and Locust is about to end."""
        if "now" not in _setup:
            raise GreenletExit  # Locust reports any other exception with a traceback
        self.setup = _setup["now"]

    def tell(self, kind: str, name: str, seconds: float, size: int = 0, wrong: str = "") -> None:
        """Count one thing in Locust's statistics."""
        self.environment.events.request.fire(
            request_type=kind,
            name=name,
            response_time=seconds * 1000,
            response_length=size,
            exception=NoAnswerError(wrong) if wrong else None,
            context={},
        )


class Attacker(_Base):
    """Makes one attack of --attacks after the other, each user beginning with another. The time is until the cut."""

    wait_time = constant(0.1)

    def on_start(self) -> None:
        super().on_start()
        self._number = next(self.setup.numbers) if self.setup.names else 0

    @task
    def attack(self) -> None:
        """Follow a script. A connection that was held to the limit is a failure of the server."""
        if not self.setup.names:
            raise StopUser
        name = self.setup.names[self._number % len(self.setup.names)]
        self._number += 1
        flood = next(attack for attack in ATTACKS if attack.name == name).enough is None
        seen = follow(self.setup.script(name), self.setup.target, _PASSING if flood else self.setup.options.limit)
        held = "" if flood or seen.seconds is not None else f"held for {self.setup.options.limit:g} s"
        self.tell("ATTACK", name, seen.seconds if seen.seconds is not None else seen.watched, seen.sent,
                  seen.trouble or held)  # fmt: skip


class Honest(_Base):
    """Asks at --rate, whatever the server does. The time counts from the moment a request was due."""

    def on_start(self) -> None:
        self._pool = Pool(_CONNECTIONS)
        self._idle: list[Talk] = []
        super().on_start()
        self._due = monotonic()

    def on_stop(self) -> None:
        """Close the connections."""
        self._pool.kill()
        for talk in self._idle:
            talk.close()

    def wait_time(self) -> float:
        """Return the seconds until the next request is due."""
        self._due += 1 / self.setup.options.rate
        return max(0.0, self._due - monotonic())

    @task
    def ask(self) -> None:
        """Let a greenlet make the request; wait here if all connections are busy."""
        self._pool.spawn(self._ask, self._due)

    def _ask(self, due: float) -> None:
        talk: Talk | None = None
        size, wrong = 0, ""
        try:
            talk = self._reused() or Talk(self.setup.target)
            status, size = talk.ask()
            wrong = "" if 200 <= status < 400 else f"status {status}"
        except (OSError, NoAnswerError) as error:
            wrong = str(error)
        self.tell("GET", self.setup.target.path, monotonic() - due, size, wrong)
        if talk is not None and not wrong and talk.keeps_alive:
            self._idle.append(talk)
        elif talk is not None:
            talk.close()

    def _reused(self) -> Talk | None:
        """Return an idle connection that the server has not ended meanwhile."""
        while self._idle:
            talk = self._idle.pop()
            if not talk.gone():
                return talk
            talk.close()
        return None


class Churner(_Base):
    """Is one keep-alive connection of --churn-profile. The time of `cut` is how long after the deadline it came."""

    wait_time = constant(0)

    def on_start(self) -> None:
        self._talk: Talk | None = None
        self._since = 0.0
        super().on_start()
        self._deadline = self.setup.deadline()
        profile = PROFILES[self.setup.options.churn_profile]
        period = self._deadline or _PERIOD
        self._profile = profile(period, random.Random(), cuts=self._deadline is not None)

    def on_stop(self) -> None:
        """Close the connection."""
        self._leave()

    @task
    def live(self) -> None:
        """Ask, and be silent until it is time to ask again, to leave, or until the server has cut."""
        if not self._ask():
            self._leave(reset=True)
            gevent.sleep(max(_AGAIN, self._profile.back(monotonic()) - monotonic()))
            return
        act, when = self._profile.next(self._since)
        overdue = (self._deadline or 0.0) * 1.2 + _LATE
        assert self._talk is not None
        if self._talk.silent(overdue if act is Act.WAIT else when - self._since) is not None:
            self._cut()
        elif act is Act.WAIT:
            self.tell("CHURN", "cut", overdue - (self._deadline or 0.0), wrong="not cut")
            self._leave(reset=True)
        elif act is not Act.SPEAK:
            self._leave(reset=act is Act.RESET)

    def _ask(self) -> bool:
        """Make a request; False if that failed."""
        began = monotonic()
        silent = began - self._since
        known = self._talk is not None
        try:
            self._talk = self._talk or Talk(self.setup.target)
            status, size = self._talk.ask()
        except (OSError, NoAnswerError) as error:
            lost = known and (self._deadline is None or silent < self._deadline - _EARLY)
            if lost or not known:
                self.tell(
                    "CHURN", "request", monotonic() - began, wrong=f"lost to a cut: {error}" if lost else f"{error}"
                )
            return False
        self._since = monotonic()
        self.tell("CHURN", "request", self._since - began, size, "" if status < 400 else f"status {status}")
        return status < 400 and self._talk.keeps_alive

    def _cut(self) -> None:
        late = monotonic() - self._since - (self._deadline or 0.0)
        early = self._deadline is not None and late < -_EARLY
        self.tell("CHURN", "cut", max(0.0, late), wrong=f"{-late:.1f} s before the deadline" if early else "")
        self._leave()

    def _leave(self, *, reset: bool = False) -> None:
        if self._talk is not None:
            self._talk.close(reset=reset)
            self._talk = None
