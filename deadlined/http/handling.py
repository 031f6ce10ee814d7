"""One run of a handler in the task of its connection: what it raises is passed on, what it abandons is closed, and how
it has failed is logged."""

from __future__ import annotations

import logging
import traceback
from functools import partial

from .base import ConnectionBase
from .errors import Disconnected, ResponseCut, UnfinishedResponseError, is_disconnect
from .exchange import Exchange
from .owner import ConnectionTask
from .reporting import report
from .settings import Handler
from .state import DEAD, STARTED


async def run_handler(task: ConnectionTask, handler: Handler, exchange: Exchange, connection: ConnectionBase) -> None:
    """Run `handler(exchange)` in `task`, and then close the async generators that it has abandoned.

    Tell `connection` of the failure if the handler raises an Exception, or returns before its response is complete. A
    Disconnected is no failure once the exchange has ended. Other BaseExceptions pass. If a handler is cancelled and its
    clean-up fails, it may raise a group of both: the Exceptions are told, and the rest passes.
    """
    cut: BaseException | None = None
    try:
        await task.run_handler(handler, exchange)
        if not (exchange.writer.complete or exchange.link == DEAD):
            raise UnfinishedResponseError("the application returned before its response was complete")
    except Exception as error:
        _tell_failure(connection, exchange, error)
    except BaseException as error:
        # cancelled: the frames of the traceback would keep abandoned generators from being closed here
        traceback.clear_frames(error.__traceback__)
        cut = _tell_failures(connection, exchange, error)
    try:
        # outside of the `except` blocks: compiled code that suspends in one loses the exception (runtime/within.py)
        closing = task.close_generators()
        if closing is not None:
            await closing
        if cut is not None:
            raise cut
    finally:
        # its traceback refers to this frame
        cut = None


def _tell_failures(connection: ConnectionBase, exchange: Exchange, error: BaseException) -> BaseException | None:
    """Tell `connection` of the Exceptions of a group, and return the rest."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    failures, rest = error.split(Exception)
    if failures is not None:
        _tell_failure(connection, exchange, failures)
    return rest


def _tell_failure(connection: ConnectionBase, exchange: Exchange, error: BaseException) -> None:
    # it may be the disconnect of another client, to which the handler has sent something
    if not (exchange.ended and is_disconnect(error)):
        connection.handler_failed(exchange, error)


def log_failure(exchange: Exchange, error: BaseException, stopped: bool) -> None:
    """Log how the handler of `exchange` has failed. `stopped`: it has returned in a drain, before its response was
    complete."""
    if stopped and exchange.response == STARTED:
        tell = partial(report, logging.INFO, "%s was ended by the application for the drain", exchange.request.line)
    else:
        # what was logged where it was found, the operator's Ctrl-C, or a consequence of the disconnect
        quiet = isinstance(error, (ResponseCut, KeyboardInterrupt)) or _is_consequence(exchange, error)
        level = logging.DEBUG if quiet else logging.ERROR
        tell = partial(report, level, "%s failed", exchange.request.line, error=error)
    if exchange.task is None:
        tell()
    else:
        # loggers find there what the application says of its request
        exchange.task.call_in_context(tell)


def _is_consequence(exchange: Exchange, error: BaseException) -> bool:
    """Return True if a handler has most likely failed because its exchange is dead, or because it was told that its
    body is cut. Without `cancel_on_disconnect` a handler notices that only by a receive, or by a Disconnected: one that
    has the whole body and raises anything else would have failed anyway."""
    if exchange.link != DEAD and not exchange.was_told:
        return False
    return exchange.cancel_on_disconnect or isinstance(error, Disconnected) or not exchange.body_done
