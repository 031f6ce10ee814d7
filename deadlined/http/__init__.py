"""HTTP/1.1 on h11, or on httptools and h11, every phase of a connection under its own deadline."""

from __future__ import annotations

from .counts import HistogramCounts, HttpStatistics
from .draining import Draining
from .errors import BadRequest, Disconnected, ResponseError, UpgradeRefused
from .exchange import Exchange
from .policy import REUSE_GRACE, RULES, Action, Rule
from .records import ConnectionInfo, ConnectionRecord, Observer, RequestRecord
from .routes import Route
from .server import HttpServer
from .state import Phase, Reason
from .survey import Survey
from .timeouts import Limits, Timeouts
from .websocket import WebSocket, open_frames
from .wire import PARSERS, Request, head_parser

__all__ = [
    "PARSERS",
    "REUSE_GRACE",
    "RULES",
    "Action",
    "BadRequest",
    "ConnectionInfo",
    "ConnectionRecord",
    "Disconnected",
    "Draining",
    "Exchange",
    "HistogramCounts",
    "HttpServer",
    "HttpStatistics",
    "Limits",
    "Observer",
    "Phase",
    "Reason",
    "Request",
    "RequestRecord",
    "ResponseError",
    "Route",
    "Rule",
    "Survey",
    "Timeouts",
    "UpgradeRefused",
    "WebSocket",
    "head_parser",
    "open_frames",
]
