"""Writes docs/grid.md from the files of results, and from nothing else: the same files always give the same page.

Its text is page.md, a template.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..check.attacks import ATTACKS, Attack
from ..check.grade import GRADES, RULES, held_verdict
from ..check.kinds import Deadline
from ..commands import rendered
from .contestants import SERVERS

Result = dict[str, Any]

OURS = "deadlined"
_COLUMNS = [attack for attack in ATTACKS if not attack.needs_tls]
_ORDER = [server.name for server in SERVERS]
_TITLES = {"defaults": "With their defaults", "best": "With their best settings"}
# what must be the same for all, beside how they were attacked; the rest of `machine` is about deadlined's build
_MACHINE = ("processor", "cores", "system", "python")
_RANK = {"pass": 0, "weak": 1, "fail": 2}
# ends that are further apart than this part of their median are shown with it: connections waited for each other
_SCATTERED = 0.1
# names in a sentence
_NAMED = 6


class Row:
    """The results of one contestant, and what the page says of them. `report` is empty if it was not measured."""

    def __init__(self, result: Result) -> None:
        self.result = result
        self.server: str = result["server"]
        self.name = f"{self.server} {result['version']}".strip()
        self.commit = (result["commit"] or "unknown")[:10] + (" with changes" if result["dirty"] else "")
        self.report: Result = result.get("report", {})
        self.grade: str = self.report.get("grade", "")
        self.attacks: dict[str, Result] = {attack["name"]: attack for attack in self.report.get("attacks", [])}

    @property
    def place(self) -> tuple[int, int, int]:
        """What the rows are sorted by: the best first, those without a grade last, ties in the order of contestants."""
        fails = sum(attack["verdict"] == "fail" for attack in self.attacks.values())
        listed = _ORDER.index(self.server) if self.server in _ORDER else len(_ORDER)
        return GRADES.index(self.grade) if self.graded else len(GRADES), fails, listed

    @property
    def graded(self) -> bool:
        return bool(self.grade) and self.grade in GRADES

    def cell(self, attack: Attack) -> str:
        """Return what is said of an attack."""
        return cell(attack, self.attacks[attack.name], self.report["limit"])

    @property
    def worst_honest(self) -> str:
        """The highest 99th percentile that honest clients felt, as text."""
        felt = [attack["honest"]["p99_ms"] for attack in self.attacks.values()]
        worst = max((p99 for p99 in felt if p99 is not None), default=None)
        return "" if worst is None else f"{worst:.0f} ms"

    @property
    def remarks(self) -> list[str]:
        gone, died = self.report.get("gone"), self.result["died"]
        remarks = [
            self.result["failed"] and f"not measured: {self.result['failed']}",
            self.result["note"],
            gone and f"after the attacks: {gone}",
            died and f"in the end {died}",
            self.report.get("interrupted") and "interrupted: this is what was measured until then",
            *(f"`{name}` {attack['why']}" for name, attack in self.attacks.items() if _unmeasured(attack)),
        ]
        return [_plain(text) for text in remarks if text]


def _plain(text: str) -> str:
    """Return a line that no table or markup takes for its own."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def write(results: Sequence[Result], remarks: str = "") -> str:
    """Return the page. ValueError if the results were not measured under the same conditions.

    `remarks`: what must be known of the measurement beside its results.
    """
    _same_conditions(results)
    rows = [Row(result) for result in results]
    tables = {settings: sorted((row for row in rows if row.result["settings"] == settings), key=lambda row: row.place)
              for settings in _TITLES}  # fmt: skip
    days = sorted({result["at"][:10] for result in results})
    return rendered(
        Path(__file__).with_name("page.md"), rows=rows, columns=_COLUMNS, rules=RULES, plain=_plain, remarks=remarks,
        tables={_TITLES[settings]: found for settings, found in tables.items()}, commits=_commits(rows),
        dates=days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}",
        builds=sorted({row.result["machine"]["timers"] for row in rows if row.server.startswith(OURS)}),
        worse=[line for settings, found in tables.items() for line in _worse(settings, found)],
    )  # fmt: skip


def _same_conditions(results: Sequence[Result]) -> None:
    for key in ("limit", "crowd", *_MACHINE):
        if len(found := {str(result.get(key, result["machine"].get(key))) for result in results}) > 1:
            raise ValueError(f"the results have not the same {key}: {'; '.join(sorted(found))}")


def _commits(rows: Sequence[Row]) -> str:
    """Return the commit of most results, and which have another."""
    (most, _), *others = Counter(row.commit for row in rows).most_common()
    named = {name: [f"{row.server} ({row.result['settings']})" for row in rows if row.commit == name]
             for name, _ in others}  # fmt: skip
    rest = "; ".join(f"{name}: {', '.join(servers)}" for name, servers in named.items())
    return f"{most}, but at {rest}" if rest else most


def cell(attack: Attack, found: Result, limit: float) -> str:
    """Return what is said of an attack in the table."""
    if found["verdict"] == "not applicable":
        return "n/a"
    if found["verdict"] == "unfinished":
        return "not finished"
    if _unmeasured(found):
        return "**not measured**"
    held, _ = held_verdict(attack, Deadline(found["kind"], found["seconds"], watched=found["watched"]), limit)
    parts = [] if attack.enough is None else [_held(attack, found, held)]
    if found["verdict"] != held:
        parts.append(_honest(found))
    return "; ".join(parts) or "passes"


def _unmeasured(found: Result) -> bool:
    return bool(found["why"].startswith("not measured"))


def _held(attack: Attack, found: Result, held: str) -> str:
    seconds = found["seconds"]
    if seconds is None:
        return "**held**"
    text = "at once" if seconds < 0.1 else f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    if found["spread"] > max(1.0, _SCATTERED * seconds):
        text += f" ± {found['spread'] / 2:.0f} s"
    elif found["min_rate"]:
        low, high = found["min_rate"]
        text += f" + {low:.0f} B/s" if low == high else f" + {low:.0f} to {high:.0f} B/s"
    if held == "fail":
        return f"**{text}**" if found["kind"] in (attack.enough or ()) else f"**{text} if it stalls**"
    return text if held == "pass" else f"~ {text}"


def _honest(found: Result) -> str:
    """Return what made honest clients decide the verdict."""
    honest = found["honest"]
    asked = honest["ok"] + honest["failed"]
    if honest["failed"] * 100 > asked:
        text = f"served {100 * honest['ok'] // asked} %"
    else:
        text = f"p99 {honest['p99_ms']:.0f} ms"
    return f"**{text}**" if found["verdict"] == "fail" else f"~ {text}"


def _worse(settings: str, rows: Sequence[Row]) -> Iterator[str]:
    """Say where, under the same kind of settings, which servers do better than ours."""
    others = [row for row in rows if not row.server.startswith(OURS)]
    where = _TITLES[settings].lower()
    for ours in (row for row in rows if row.server == OURS and row.report):
        if better := [row for row in others if row.graded and row.grade < ours.grade]:
            named = _listed(f"{row.server} ({row.grade})" for row in better)
            yield f"{where}, the grade {ours.grade} is below that of {named}"
        for attack in _COLUMNS:
            for how, found in _better(attack, ours, others).items():
                named = _listed(f"{row.server} ({row.cell(attack)})" for row in found)
                if found:
                    yield f"{where}, `{attack.name}`: ours is {ours.cell(attack)}; {how} are {named}"


def _better(attack: Attack, ours: Row, others: Sequence[Row]) -> dict[str, list[Row]]:
    """Return who does better in an attack: by the verdict, or by its time."""
    mine = ours.attacks[attack.name]
    if mine["verdict"] not in _RANK:
        return {}
    rivals = [(row, row.attacks[attack.name]) for row in others if attack.name in row.attacks]
    better = [row for row, found in rivals if _RANK.get(found["verdict"], 3) < _RANK[mine["verdict"]]]
    sooner = [row for row, found in rivals if _sooner(found, mine)]
    sooner.sort(key=lambda row: float(row.attacks[attack.name]["seconds"]))
    return {"better": better, "the verdict is the same, and sooner": sooner}


def _sooner(found: Result, mine: Result) -> bool:
    """Tell if it ends the attack with the same verdict, and in less time by more than the measurement's error."""
    if found["verdict"] != mine["verdict"] or found["seconds"] is None or mine["seconds"] is None:
        return False
    return bool(found["seconds"] < mine["seconds"] - max(0.1, 0.05 * mine["seconds"]))


def _listed(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return ", ".join(listed[:_NAMED]) + more
