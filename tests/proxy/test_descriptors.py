"""A proxy without a descriptor for a connection to its upstream: in a process of its own, which can do without."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import resource
import trio
from tests.support.conformance import Loop
from tests.support.http import GET
from tests.support.proxy import OK, guarding

LAST = OK.replace(b"\\r\\n\\r\\n", b"\\r\\nconnection: close\\r\\n\\r\\n")


async def main() -> None:
    async with guarding(Loop("trio")) as guarded:
        guarded.tasks.start(guarded.upstream.serve, LAST)
        client = await guarded.site.connect()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        for limit in (soft, 0, soft):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            response = await client.get(GET)
            print(response.status, dict(guarded.proxy.statistics().upstreams[0].failures))


trio.run(main)
"""


def test_a_lack_of_descriptors_is_not_the_upstreams_failure() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.stdout.splitlines() == ["200 {}", "503 {}", "200 {}"], done.stderr
