"""What only the interpreted build can be tested with."""

from __future__ import annotations

import pytest

from deadlined.timers import COMPILED

# on the list of skips that `.ci/run` allows: the same tests run there against the interpreted build
CANNOT_PLAY = "compiled: it takes no played object in the place of its own"

# tests that give a module a played object in the place of one of its own classes, which compiled code refuses
interpreted_only = pytest.mark.skipif(COMPILED, reason=CANNOT_PLAY)
