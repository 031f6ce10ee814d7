"""What Locust is given: attacks on a server, an open loop of requests, and a churn of keep-alive connections.

    locust -f loadtest/locustfile.py --host http://127.0.0.1:8000/ Attacker Honest Churner

Without names of users all are run. Locust's own options start a master and workers; its web page shows the figures.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

# Locust loads this file by its path: its package, `loadtest` in a checkout, may have another name where it is installed
_FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(_FOLDER.parent))

if TYPE_CHECKING:
    from loadtest import users
else:
    users = importlib.import_module(f"{_FOLDER.name}.users")

Attacker, Churner, Honest = users.Attacker, users.Churner, users.Honest
