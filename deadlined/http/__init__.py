"""HTTP/1.1 on h11, or on httptools and h11, every phase of a connection under its own deadline."""

from __future__ import annotations

from .admission import AdmissionStatistics
from .admitting import answer_problem
from .counts import HistogramCounts, HttpStatistics
from .draining import Draining
from .errors import BadRequest, BadResponse, Disconnected, ResponseCut, ResponseError, TruncatedResponse, UpgradeRefused
from .exchange import Exchange
from .policy import REUSE_GRACE, RULES, Action, Rule
from .records import ConnectionInfo, ConnectionRecord, Observer, RequestRecord
from .routes import Route
from .seams import ExchangeHost, Responder, Upgraded
from .server import HttpServer
from .state import Phase, Reason, Refusal
from .survey import Survey
from .timeouts import Limits, Timeouts
from .tls_facts import TlsFacts
from .websocket import WebSocket, open_frames
from .wire import (
    LAST_CHUNK,
    PARSERS,
    Request,
    Response,
    ResponseReader,
    chunk,
    field_lines,
    head_parser,
    problem,
    request_head,
)

__all__ = [
    "LAST_CHUNK",
    "PARSERS",
    "REUSE_GRACE",
    "RULES",
    "Action",
    "AdmissionStatistics",
    "BadRequest",
    "BadResponse",
    "ConnectionInfo",
    "ConnectionRecord",
    "Disconnected",
    "Draining",
    "Exchange",
    "ExchangeHost",
    "HistogramCounts",
    "HttpServer",
    "HttpStatistics",
    "Limits",
    "Observer",
    "Phase",
    "Reason",
    "Refusal",
    "Request",
    "RequestRecord",
    "Responder",
    "Response",
    "ResponseCut",
    "ResponseError",
    "ResponseReader",
    "Route",
    "Rule",
    "Survey",
    "Timeouts",
    "TlsFacts",
    "TruncatedResponse",
    "UpgradeRefused",
    "Upgraded",
    "WebSocket",
    "answer_problem",
    "chunk",
    "field_lines",
    "head_parser",
    "open_frames",
    "problem",
    "request_head",
]
