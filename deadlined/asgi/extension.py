"""`scope["extensions"]["deadlined"]`: a request's deadlines and the server's drain, for the application."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any, Final

from ..http import Draining, Exchange


class DeadlinesExtension:
    """`scope["extensions"]["deadlined"]`: an application moves the deadlines of its own request.

    `set_read_deadline(when)`, `set_write_deadline(when)`, `set_handler_deadline(when)` take absolute seconds on the
    event loop's clock (`deadlined.current_time()`), `inf` for none, and replace the server's deadlines for the rest of
    the request; NaN is a ValueError, and a call outside of the event loop a RuntimeError. `deadline` is when the
    application must have returned, absolute, `inf` for never. `await draining` returns when the server begins to drain,
    so that an endless response can end by itself; `draining.is_set()` tells whether it has begun. Each is both an
    attribute and a key.
    """

    __slots__ = ("_exchange",)

    _NAMES: Final = ("set_read_deadline", "set_write_deadline", "set_handler_deadline", "deadline", "draining")

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def set_read_deadline(self, when: float) -> None:
        """Let receiving the rest of the body fail at `when`: the application gets `http.disconnect`."""
        self._exchange.set_read_deadline(when)

    def set_write_deadline(self, when: float) -> None:
        """Reset the connection unless the peer has taken each send, a current one included, by `when`."""
        self._exchange.set_write_deadline(when)

    def set_handler_deadline(self, when: float) -> None:
        """Cancel the application at `when`; the peer gets 504 if nothing was answered yet."""
        self._exchange.set_handler_deadline(when)

    @property
    def deadline(self) -> float:
        """When the application must have returned, absolute; `inf` for never."""
        return self._exchange.deadline

    @property
    def draining(self) -> Draining:
        """An awaitable that returns when the server begins to drain. Can be awaited any number of times."""
        return self._exchange.draining

    def __deepcopy__(self, memo: dict[int, Any]) -> DeadlinesExtension:
        """Return this object: a copy of a scope belongs to the same request."""
        return self

    def __getitem__(self, name: str) -> Any:
        if name not in self._NAMES:
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._NAMES)

    def __len__(self) -> int:
        return len(self._NAMES)

    def __contains__(self, name: object) -> bool:
        return name in self._NAMES

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a key, `default` if there is no such key."""
        return self[name] if name in self._NAMES else default

    def keys(self) -> KeysView[str]:
        """Return the keys, as any mapping does."""
        return self._as_dict().keys()

    def values(self) -> ValuesView[Any]:
        """Return the values."""
        return self._as_dict().values()

    def items(self) -> ItemsView[str, Any]:
        """Return the keys with their values."""
        return self._as_dict().items()

    def _as_dict(self) -> dict[str, Any]:
        return {name: self[name] for name in self._NAMES}


# registered instead of derived, because a class without an interpreted base is instantiated much faster when compiled
Mapping.register(DeadlinesExtension)
