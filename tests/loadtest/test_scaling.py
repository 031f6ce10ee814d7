"""The simulation of many machines: its arithmetic against sums by hand, its table in the documents, and its errors."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from deadlined.http import Timeouts
from loadtest.__main__ import main
from loadtest.scaling import ACCEPT, HANDSHAKE, MEMORY, REQUEST, Plan, busiest, herd, simulate, timer_rates

PAGE = Path(__file__).parents[2] / "docs" / "scaling.md"


def asked(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["scaling", *arguments])


def figures(*arguments: str) -> Any:
    result = asked("--json", *arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


SMALL = ("--connections", "200", "--cores", "2", "--machines", "3")


def test_the_page_has_the_table_that_the_command_prints() -> None:
    [shown] = re.findall(r"<!-- scaling -->\n\n(.*?)\n<!-- end -->", PAGE.read_text(), re.DOTALL)
    assert asked().output == shown


def test_a_seed_gives_the_same_figures_again_and_another_seed_others() -> None:
    assert figures(*SMALL) == figures(*SMALL)
    assert figures(*SMALL)["machines"] != figures(*SMALL, "--seed", "2")["machines"]


def test_what_grows_in_proportion() -> None:
    found = figures(*SMALL, "--period", "4")
    assert found["plan"] == {"connections": 200, "period": 4.0, "cores": 2, "machines": 3, "jitter": 10.0, "seed": 1}
    for name, processes in {"process": 1, "machine": 2, "machines": 6}.items():
        site = found[name]
        assert site["connections"] == 200 * processes
        assert site["requests_per_second"] == 50 * processes
        assert site["memory"] == 200 * processes * MEMORY
        assert site["moved_per_second"] == pytest.approx(100 * processes, rel=0.01)
    # a machine at a time, if there are several
    assert [found[name]["returning"] for name in ("process", "machine", "machines")] == [200, 200, 400]


def test_clients_that_come_at_one_time_wait_for_each_other() -> None:
    result = herd(clients=100, processes=1, spread=1e-9, service=0.01, draw=random.Random(1))
    assert result.queue == 99
    assert result.wait == pytest.approx(1.0)


def test_clients_that_come_slowly_enough_wait_for_nobody() -> None:
    result = herd(clients=3, processes=1, spread=1e9, service=0.01, draw=random.Random(1))
    assert result.queue == 0
    assert result.wait == pytest.approx(0.01)


def test_a_restart_costs_a_lone_process_what_its_clients_cost_beside_its_load() -> None:
    plan = Plan(connections=7_000, cores=2, machines=2)
    site = simulate(plan)["process"]
    assert plan.share == pytest.approx(0.1)
    work = 7_000 * (ACCEPT + HANDSHAKE + REQUEST) / 0.9
    # the first client comes at once, and the last one within a tenth of a second
    assert work - 0.1 < site["tls_at_once"]["wait"] <= work
    assert site["tls_jitter"]["wait"] < site["tls_at_once"]["wait"] / 100


def test_more_processes_share_a_herd() -> None:
    waits = [herd(10_000, processes, 0.1, 1e-3, random.Random(1)).wait for processes in (1, 10, 100)]
    assert waits == sorted(waits, reverse=True)
    assert waits[0] == pytest.approx(10, abs=0.1)


def test_chance_gives_some_process_more_connections_than_the_mean() -> None:
    plan = Plan(connections=10_000)
    assert busiest(plan, 1, random.Random(1)) == 10_000
    # of 800 draws from a normal distribution the largest lies about three deviations above the mean
    assert 10_200 < busiest(plan, 800, random.Random(1)) < 10_500


def test_the_timers_are_filed_anew_once_in_an_idle_time_and_cut_only_the_idle() -> None:
    often = timer_rates(Plan(period=1.0))
    assert often.moved == pytest.approx(2.0, rel=0.02)
    assert often.filed == pytest.approx(1 / Timeouts().idle, rel=0.05)
    assert often.cut == 0
    seldom = timer_rates(Plan(period=10 * Timeouts().idle))
    # nine of ten pauses are longer than the server waits
    assert seldom.cut == pytest.approx(0.9 * seldom.moved / 2, rel=0.1)


def test_requests_that_need_more_than_a_core_are_an_error() -> None:
    result = asked("--connections", "70000", "--period", "1")
    assert result.exit_code == 1
    assert result.output == "Error: 70000 connections with a request every 1 s need 1000% of a core\n"


@pytest.mark.parametrize("option", ["--connections=0", "--period=0", "--cores=1", "--machines=1", "--jitter=0"])
def test_wrong_values_are_refused(option: str) -> None:
    result = asked(option)
    assert result.exit_code == 2
    assert f"'{option.split('=')[0]}'" in result.output


def test_the_help_tells_what_is_simulated() -> None:
    assert "many machines hold, and what a restart costs" in " ".join(asked("--help").output.split())
