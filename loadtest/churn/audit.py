"""What a server says of itself, before, during and after a churn, beside what its clients know."""

from __future__ import annotations

from time import monotonic, sleep
from typing import Any

from ..crew import Crew
from ..target import UnusableTargetError
from .admin import Admin, Metrics, opened
from .connection import Rules, Silent
from .result import Audited, claims, listed
from .tally import Tally

# seconds that a server gets to count the last connections
_COUNTING = 10.0


class Audit:
    """The calls, in this order: `begin`; `ask` and `answer`, again and again; `end`. `found`: the result."""

    def __init__(self, admin: Admin, rules: Rules) -> None:
        self.found = Audited()
        self._admin = admin
        self._rules = rules
        self._before: Metrics = {}
        self._rows: list[dict[str, Any]] = []
        self._asked = self._answered = 0.0
        self._silent: dict[str, Silent] = {}
        self._missing = 0

    def begin(self) -> None:
        """Note what the server has counted, once the connections before have ended there, too."""
        until = monotonic() + _COUNTING
        while opened(metrics := self._admin.metrics()) and monotonic() < until:
            sleep(0.1)
        self._before = metrics

    def ask(self, clients: Crew) -> None:
        """Ask the server for its idle connections, and then the clients for theirs, unless they owe an answer."""
        if self._missing:
            return
        self._asked = monotonic()
        try:
            self._rows, _ = self._admin.idle()
        except UnusableTargetError as error:
            self.found.trouble = str(error)
            return
        self._answered = monotonic()
        self._silent = {}
        self._missing = clients.tell("snapshot")

    def answer(self, silent: dict[str, Silent]) -> None:
        """Take a client's answer; compare when it is the last one."""
        self._silent |= silent
        self._missing -= 1
        if not self._missing:
            compared, differ = listed(self._rows, self._silent, self._asked, self._answered, self._rules)
            self.found.compared += compared
            self.found.differ += differ

    def end(self, tally: Tally) -> None:
        """Compare what both sides have counted, when they agree, or when the server has had time to."""
        until = monotonic() + _COUNTING
        try:
            while True:
                self.found.claims = list(claims(self._before, self._admin.metrics(), tally))
                if all(claim.agree for claim in self.found.claims) or monotonic() > until:
                    return
                sleep(0.2)
        except UnusableTargetError as error:
            self.found.trouble = str(error)
