"""Locust's users: the attacks of `check`, the open loop of `http` and the connections of `churn`.

`loadtest/locustfile.py` is what Locust is given. One process may have thousands of users, each a greenlet over sockets
and a poll that seem to block (loop.py). What they see goes into Locust's own statistics, which its master adds up.
"""

from __future__ import annotations

import logging
import math
import random
from argparse import Namespace
from dataclasses import replace
from functools import cached_property
from itertools import cycle
from threading import Lock
from time import monotonic
from typing import Any

import gevent  # type: ignore[import-untyped,unused-ignore]
from gevent import GreenletExit
from locust import User, constant, events, task
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment
from locust.exception import ResponseError, StopUser
from locust.user.task import LOCUST_STATE_STOPPING

from .check.attacker import PASSING, Watch, follow
from .check.attacks import ATTACKS, NAMES
from .check.run import impossible, learned
from .check.scripts import Script, Seen, crowd, scripts
from .churn.connection import Crowd, Rules
from .churn.connection import Tally as Churned
from .churn.profiles import PROFILES
from .openloop.client import Client, Plan
from .openloop.client import Tally as Asked
from .target import PATIENCE, ForbiddenTargetError, Target, UnusableTargetError, ask, resolve

# attacks that need no more than a URL of plain HTTP
_USUAL = "silent,slow-header,endless-header,slow-body,stalled-body,idle,half-close,pipelined"
# connections that one Honest user opens at most, and the seconds for which it asks
_CONNECTIONS, _DAY = 100, 86_400.0
# seconds between two looks if a user is to stop
_LOOK = 0.25
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
    add("--churn-profile", default="steady", choices=list(PROFILES), env_var="LOADTEST_PROFILE",
        help="Churner: when it acts.")  # fmt: skip
    add("--deadline", type=float, default=0.0, env_var="LOADTEST_DEADLINE",
        help="Churner: the server's keep-alive deadline in seconds; 0 measures it.")  # fmt: skip
    add("--i-own-this-target", default="", env_var="LOADTEST_OWNED", include_in_web_ui=False,
        help="Names and addresses that may be attacked beside loopback, with commas.")  # fmt: skip


class Setup:
    """One test of one process: its target and options. `check`'s errors if it may not be, or cannot be, attacked."""

    def __init__(self, host: str, options: Namespace) -> None:
        self.options = options
        names = [name for name in options.attacks.split(",") if name]
        if unknown := set(names).difference(NAMES):
            raise ForbiddenTargetError(f"{', '.join(sorted(unknown))} is none of {', '.join(NAMES)}")
        if not (options.rate > 0 and options.limit > 0 and 0 <= options.deadline < math.inf):
            raise ForbiddenTargetError("--rate and --limit must be above 0, and --deadline at least 0")
        self.target: Target = resolve(host, [name for name in options.i_own_this_target.split(",") if name])
        self.facts = learned(self.target, ask(self.target), frozenset(names), options.limit)
        for attack in ATTACKS:
            if attack.name in names and (why := impossible(attack, self.facts)):
                raise ForbiddenTargetError(f"{attack.name}: {why}")
        self.attacks = cycle(names)
        # the histograms of these are large, and nobody reads them: one for all users
        self.asked, self.churned = Asked(), Churned()
        self._measuring = Lock()

    def script(self, name: str) -> Script:
        """Return what one of many connections of this attack does. One that reads nothing must poke to see its end."""
        if name != "slow-read":
            return crowd(self.facts, name)
        return next(replace(one, interval=0.1) for one in scripts(self.facts, frozenset({name})) if one.role == "poked")

    def follow(self, script: Script, limit: float) -> Seen:
        """Return what was seen of a script on one connection."""
        return follow(Watch(self.target, [script], limit))[0]

    def deadline(self) -> float | None:
        """Return the keep-alive deadline: measured by the first user, for whom the others wait; None for none.
        UnusableTargetError if it could not be measured; the next user tries again."""
        with self._measuring:
            return self._deadline

    @cached_property
    def _deadline(self) -> float | None:
        if self.options.deadline:
            return float(self.options.deadline)
        seen = self.follow(self.script("idle"), self.options.limit)
        if seen.trouble:
            raise UnusableTargetError(seen.trouble)
        return seen.seconds


_setup: dict[str, Setup] = {}


@events.test_start.add_listener  # type: ignore[untyped-decorator,unused-ignore]
def prepare(environment: Environment, **_: Any) -> None:
    """Resolve the target, in each process and for each test. One that may not be attacked ends the process."""
    _setup.clear()
    try:
        assert environment.parsed_options is not None
        _setup["now"] = Setup(environment.host or "", environment.parsed_options)
    except (ForbiddenTargetError, UnusableTargetError) as error:
        logging.getLogger(__name__).error("%s", error)
        environment.process_exit_code = 2 if isinstance(error, ForbiddenTargetError) else 3
        if environment.runner is not None:
            gevent.spawn(environment.runner.quit)


class _Base(User):
    abstract = True
    wait_time = constant(0.1)

    def on_start(self) -> None:
        """Find the setup; without one there is nothing to do, and Locust is about to end."""
        if "now" not in _setup:
            raise GreenletExit  # Locust reports any other exception with a traceback
        self.setup = _setup["now"]

    def stopping(self) -> bool:
        return bool(self._state == LOCUST_STATE_STOPPING)

    def tell(self, kind: str, name: str, seconds: float, size: int = 0, wrong: str = "") -> None:
        """Count one thing in Locust's statistics."""
        error, ms = ResponseError(wrong) if wrong else None, 1e3 * seconds
        self.environment.events.request.fire(
            request_type=kind, name=name, response_time=ms, response_length=size, exception=error, context={}
        )


class Attacker(_Base):
    """Makes one attack of --attacks after the other, in turn with all other users. The time is until the cut."""

    @task
    def attack(self) -> None:
        """Follow a script. A connection that was held to the limit is a failure of the server."""
        name = next(self.setup.attacks, None)
        if name is None:
            raise StopUser
        script = self.setup.script(name)
        flood = script.role == "flood"
        seen = self.setup.follow(script, PASSING if flood else self.setup.options.limit)
        held = "" if flood or seen.seconds is not None else f"held for {self.setup.options.limit:g} s"
        self.tell("ATTACK", name, seen.watched, seen.sent, seen.trouble or held)


class Honest(_Base):
    """Asks at --rate, whatever the server does. The time counts from the moment a request was due."""

    @task
    def ask(self) -> None:
        _Asking(self).run(monotonic(), self.stopping)


class _Asking(Client):
    """An open loop whose requests Locust counts."""

    def __init__(self, user: Honest) -> None:
        setup = user.setup
        super().__init__(Plan(setup.target, setup.options.rate, _DAY, _CONNECTIONS, PATIENCE), setup.asked)
        self._user = user

    def count(self, seconds: float, wrong: str, *, waited: bool = True) -> None:
        """Count a request that is over."""
        setup = self._user.setup
        self._user.tell("GET", setup.target.path, seconds, 0 if wrong else setup.facts.size, wrong)
        super().count(seconds, wrong, waited=waited)


class Churner(_Base):
    """Is one keep-alive connection of --churn-profile. The time of `cut` is how long after the deadline it came."""

    @task
    def live(self) -> None:
        """Be a crowd of one until this user is to stop."""
        setup = self.setup
        try:
            deadline = setup.deadline()
        except UnusableTargetError as error:
            self._told("deadline", 0.0, str(error))
            return
        overdue = (deadline or 0.0) * 1.2 + _LATE
        rules = Rules(setup.target, setup.options.churn_profile, deadline, _EARLY, overdue, spread=False)
        crowd = Crowd(rules, random.Random(), setup.churned, self._told)
        try:
            crowd.connect(0, monotonic())
            while not self.stopping():
                crowd.loop.turn(monotonic() + _LOOK)
        finally:
            crowd.close()

    def _told(self, what: str, seconds: float, wrong: str) -> None:
        self.tell("CHURN", what, max(0.0, seconds), self.setup.facts.size if what == "request" else 0, wrong)
