"""Writes docs/grid.md from the files of results, and from nothing else: the same files always give the same page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..check.attacks import ATTACKS, Attack
from ..check.grade import GRADES, RULES, held_verdict
from ..check.kinds import Deadline
from .contestants import SERVERS

Result = dict[str, Any]

OURS = "deadlined"
_COLUMNS = [attack for attack in ATTACKS if not attack.needs_tls]
_ORDER = [server.name for server in SERVERS]
_TITLES = {"best": "With their best settings", "defaults": "With their defaults"}
# what must be the same for all, beside how they were attacked; the rest of `machine` is about deadlined's build
_MACHINE = ("processor", "cores", "system", "python")
_RANK = {"pass": 0, "weak": 1, "fail": 2}
# ends that are further apart than this part of their median are shown with it: connections waited for each other
_SCATTERED = 0.1
# names in a sentence
_NAMED = 6

_LEGEND = """\
Each row is one server, attacked by `python -m loadtest check`, which uses nothing of it but its port, and graded by the
same rules as all others, ours too. [docs/check.md](check.md) describes the attacks.

| in a cell | means |
|---|---|
| `10 s` | passes: the server ends the attack after 10 seconds, and the attacker cannot put that off |
| `10 s + 500 B/s` | passes: as long as the attacker pays with 500 bytes per second, it goes on |
| `~ 75 s` | weak: it is ended, later than it should be |
| **held** | fails: the connection was still open when the watch ended |
| **10 s if it stalls** | fails: one byte now and then holds the connection for ever |
| **400 s** | fails: ended far too late |
| `±` | the ends of single connections differ by so much: they waited for each other |
| `served 40 %` | while a crowd attacked, this part of the honest requests was answered within a second |
| `p99 900 ms` | while a crowd attacked, one honest request in a hundred took longer than that |
| n/a | does not apply, for example because the server has no websockets |
"""


def write(results: Sequence[Result], remarks: str = "") -> str:
    """Return the page. ValueError if the results were not measured under the same conditions.

    `remarks`: what must be known of the measurement beside its results.
    """
    _same_conditions(results)
    parts = [
        "# The grid: how servers treat slow clients\n",
        "<!-- written by `python -m loadtest grid --write` from the files in docs/grid; do not edit -->\n",
        _setup(results),
        *([remarks] if remarks else []),
        _LEGEND,
    ]
    for settings in ("defaults", "best"):
        rows = _sorted(result for result in results if result["settings"] == settings)
        if rows:
            parts.append(f"## {_TITLES[settings]}\n\n" + "\n".join(_table(rows)) + "\n")
            parts.append("\n".join([*_footnotes(rows), ""]))
    parts.append("## Where deadlined is not the best\n\n" + "\n".join(_worse(results)) + "\n")
    parts.append("## The best settings\n\n" + _BEST + "\n".join(_settings(results)) + "\n")
    parts.append(f"## The rules\n\n```\n{RULES}\n```\n")
    parts.append(_MADE)
    return "\n".join(parts)


def _same_conditions(results: Sequence[Result]) -> None:
    for key in ("limit", "crowd", *_MACHINE):
        if len(found := {str(result.get(key, result["machine"].get(key))) for result in results}) > 1:
            raise ValueError(f"the results have not the same {key}: {'; '.join(sorted(found))}")


def _setup(results: Sequence[Result]) -> str:
    first = results[0]
    machine, days = first["machine"], sorted({result["at"][:10] for result in results})
    commits = Counter(_commit(result) for result in results)
    date = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    (most, _), *others = commits.most_common()
    rest = "; ".join(f"{name}: {_names(result for result in results if _commit(result) == name)}" for name, _ in others)
    at = f"at commit {most}" + (f", but at {rest}" if rest else "")
    builds = {result["machine"]["timers"] for result in results if result["server"].startswith(OURS)}
    build = f", deadlined {' and '.join(sorted(builds))}" if builds else ""
    return (
        f"Measured on {date} {at}, on {machine['processor']} with {machine['cores']} cores, {machine['system']}, "
        f"Python {machine['python']}{build}. Each connection was watched for "
        f"{first['limit']:g} seconds at most, and a crowd is {first['crowd']} connections. Each server answers GET and "
        "POST with 256 KiB after it has read the whole body; nginx, HAProxy, caddy and Apache are proxies in front of "
        "uvicorn. One process each, if the settings do not say more. Plain HTTP.\n"
    )


def _commit(result: Result) -> str:
    return (result["commit"] or "unknown")[:10] + (" with changes" if result["dirty"] else "")


def _names(results: Iterable[Result]) -> str:
    return ", ".join(f"{result['server']} ({result['settings']})" for result in results)


def _grade(result: Result) -> str:
    return str(result["report"]["grade"]) if "report" in result else ""


def _sorted(results: Iterable[Result]) -> list[Result]:
    """Return the best first, those without a grade last, and ties in the order of `contestants`."""

    def key(result: Result) -> tuple[int, int, int]:
        grade, name = _grade(result), result["server"]
        fails = sum(attack["verdict"] == "fail" for attack in _attacks(result).values())
        place = _ORDER.index(name) if name in _ORDER else len(_ORDER)
        return GRADES.index(grade) if grade and grade in GRADES else len(GRADES), fails, place

    return sorted(results, key=key)


def _attacks(result: Result) -> dict[str, Result]:
    found = result.get("report", {}).get("attacks", [])
    return {attack["name"]: attack for attack in found}


def _table(rows: Sequence[Result]) -> Iterator[str]:
    yield "| | grade | " + " | ".join(f"{attack.name}" for attack in _COLUMNS) + " | worst honest p99 |"
    yield "|---|---|" + "---|" * len(_COLUMNS) + "---:|"
    for number, result in enumerate(rows, 1):
        mark = f" <sup>{number}</sup>" if _remarks(result) else ""
        name = f"{result['server']} {result['version']}".strip()
        if "report" not in result:
            yield f"| {name}{mark} | none | " + "| ".join(" " for _ in _COLUMNS) + "| |"
            continue
        found = _attacks(result)
        cells = [cell(attack, found[attack.name], result["report"]["limit"]) for attack in _COLUMNS]
        end = ", died" if result["died"] else ""
        yield f"| {name}{mark} | **{_grade(result)}**{end} | " + " | ".join([*cells, _worst_honest(result)]) + " |"


def cell(attack: Attack, found: Result, limit: float) -> str:
    """Return what is said of an attack in the table."""
    if found["verdict"] == "not applicable":
        return "n/a"
    if found["verdict"] == "unfinished":
        return "not finished"
    held, _ = held_verdict(attack, _deadline(found), limit)
    parts = [] if attack.enough is None else [_held(attack, found, held)]
    if found["why"].startswith("not measured"):
        parts = ["**not measured**"]
    elif found["verdict"] != held:
        parts.append(_honest(found))
    return "; ".join(parts) or "passes"


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


def _deadline(found: Result) -> Deadline:
    """Return what `held_verdict` asks of a deadline."""
    return Deadline(found["kind"], found["seconds"], watched=found["watched"])


def _worst_honest(result: Result) -> str:
    felt = [attack["honest"]["p99_ms"] for attack in _attacks(result).values()]
    known = [p99 for p99 in felt if p99 is not None]
    return f"{max(known):.0f} ms" if known else ""


def _remarks(result: Result) -> list[str]:
    report = result.get("report", {})
    ways = [attack for attack in _attacks(result).values() if attack["why"].startswith("not measured")]
    remarks = [
        result["failed"] and f"not measured: {result['failed']}",
        result["note"],
        report.get("gone", "") and f"after the attacks: {report['gone']}",
        result.get("died", "") and f"in the end {result['died']}",
        report.get("interrupted") and "interrupted: this is what was measured until then",
        *(f"`{attack['name']}` {attack['why']}" for attack in ways),
    ]
    return [_plain(remark) for remark in remarks if remark]


def _plain(text: str) -> str:
    """Return a line that no table or markup takes for its own."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _footnotes(rows: Sequence[Result]) -> Iterator[str]:
    for number, result in enumerate(rows, 1):
        if remarks := _remarks(result):
            yield f"{number}. {result['server']}: {'; '.join(remarks)}"


def _worse(results: Sequence[Result]) -> Iterator[str]:
    """Say of each attack which servers do better than ours under the same kind of settings."""
    said = False
    for settings in ("defaults", "best"):
        rows = _sorted(result for result in results if result["settings"] == settings)
        ours = next((result for result in rows if result["server"] == OURS and "report" in result), None)
        if ours is None:
            continue
        for line in _better(ours, [result for result in rows if not result["server"].startswith(OURS)]):
            said = True
            yield f"- {_TITLES[settings].lower()}, {line}"
    if not said:
        yield "No server of this grid does better in any attack."


def _better(ours: Result, others: Sequence[Result]) -> Iterator[str]:
    better = [one for one in others if _grade(one) and _grade(one) in GRADES and _grade(one) < _grade(ours)]
    if better:
        named = _listed(f"{one['server']} ({_grade(one)})" for one in better)
        yield f"the grade {_grade(ours)} is below that of {named}"
    limit = ours["report"]["limit"]
    for attack in _COLUMNS:
        mine = _attacks(ours)[attack.name]
        if mine["verdict"] not in _RANK:
            continue
        rivals = [(one, _attacks(one).get(attack.name)) for one in others]
        judged = [(one, found) for one, found in rivals if found and found["verdict"] in _RANK]
        shown = cell(attack, mine, limit)
        graded = [(one, found) for one, found in judged if _RANK[found["verdict"]] < _RANK[mine["verdict"]]]
        if graded:
            named = _listed(f"{one['server']} ({cell(attack, found, limit)})" for one, found in graded)
            yield f"`{attack.name}`: ours is {shown}; better are {named}"
        sooner = [one for one in judged if one not in graded and _sooner(one[1], mine)]
        if sooner:
            sooner.sort(key=lambda one: float(one[1]["seconds"]))
            named = _listed(f"{one['server']} ({cell(attack, found, limit)})" for one, found in sooner)
            yield f"`{attack.name}`: ours is {shown}; the verdict is the same, and sooner are {named}"


def _sooner(found: Result, mine: Result) -> bool:
    """Tell if it ends the attack with the same verdict, and in less time by more than the measurement's error."""
    if found["verdict"] != mine["verdict"] or found["seconds"] is None or mine["seconds"] is None:
        return False
    return bool(found["seconds"] < mine["seconds"] - max(0.1, 0.05 * mine["seconds"]))


def _listed(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return ", ".join(listed[:_NAMED]) + more


_MADE = """\
## How it is made

```sh
pip install -e '.[fast,grid]'
apt-get install nginx haproxy caddy apache2 nodejs
python -m loadtest grid --list     # the contestants, and what is not installed
python -m loadtest grid            # 40 minutes; about one processor
python -m loadtest grid nginx      # one server again
```

Groups of servers wait for their deadlines side by side; the crowds attack one server after the other. The files in
docs/grid keep all that was measured, and this page is written from them. A server that fails to start, or is not
installed, stays in the table with the reason.
"""

_BEST = """\
What each server's documentation offers against slow clients, all to the same measure where they are numbers: 10 seconds
for a head, 30 for a body and for a response, 15 between requests. Limits per address are left out: here the honest
clients have the attackers' address.

| | setting | reason |
|---|---|---|
"""


def _settings(results: Sequence[Result]) -> Iterator[str]:
    for result in sorted(results, key=lambda result: str(result["server"])):
        for option in result["options"]:
            yield f"| {result['server']} | `{option['text']}` | {_plain(option['reason'])} |"
