"""A service as the admin listener sees it: a seam, implemented for a serving process and for an admin process."""

from __future__ import annotations

from collections.abc import Mapping

from .picture import Picture, Question


class UnavailableError(Exception):
    """The service does not answer. The message is a sentence that says why."""


class RefusedError(Exception):
    """The service does not do what it was asked for. The message is a sentence that says why."""


class Service:
    """Answers questions about a service, drains and reloads it. An abstract base class. `config`: the options to show
    after a reload; None while they are those of the start."""

    config: Mapping[str, object] | None = None

    async def ask(self, question: Question) -> Picture:
        """Return the service as it is now, with what `question` asks for. The question `drain` begins the drain, once;
        `reload` reads the configuration again.
        Raise UnavailableError if there is no answer in time, RefusedError if the service does not drain by itself."""
        raise NotImplementedError
