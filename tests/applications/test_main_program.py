"""The program that docs/asgi.md has in place of `uvicorn.run` is a service: it logs, serves, and drains on SIGTERM."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.support.command import Process, launched

PAGE = (Path(__file__).parents[2] / "docs" / "asgi.md").read_text()


def test_the_program_in_place_of_uvicorn_run_serves_until_it_is_told_to_end(tmp_path: Path) -> None:
    (program,) = re.findall(r"^```py\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert "port=8000" in program
    (tmp_path / "main.py").write_text(program.replace("port=8000", "port=0"))
    with launched("main.py", command=[sys.executable], cwd=tmp_path) as started:
        process = Process(started)
        assert process.get().endswith('\r\n\r\n"hello"')
        process.signal()
        assert process.end() == (0, "")
    assert [line["event"] for line in process.lines if line["logger"] == "deadlined"][-2:] == ["draining", "stopped"]
    assert process.events("listening")[0]["loop"] == "uvloop"
