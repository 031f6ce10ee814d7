"""A report as JUnit's XML, which continuous integration shows attack by attack."""

from __future__ import annotations

from xml.etree import ElementTree

from .outcome import Outcome, Report


def junit(report: Report) -> str:
    """Return the document. A weak verdict is no failure: --fail-below decides about the whole."""
    verdicts = [outcome.verdict for outcome in report.outcomes]
    suite = ElementTree.Element(
        "testsuite",
        name=f"check {report.target}",
        tests=str(len(verdicts)),
        failures=str(verdicts.count("fail")),
        skipped=str(sum(verdict in ("not applicable", "unfinished") for verdict in verdicts)),
        errors="0",
        time=f"{report.seconds:.1f}",
        timestamp=report.at,
    )
    properties = ElementTree.SubElement(suite, "properties")
    ElementTree.SubElement(properties, "property", name="grade", value=report.grade)
    for outcome in report.outcomes:
        _case(suite, outcome)
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: ElementTree.Element, outcome: Outcome) -> None:
    seconds = outcome.deadline.seconds or outcome.deadline.watched
    case = ElementTree.SubElement(
        suite, "testcase", classname="loadtest.check", name=outcome.attack.name, time=f"{seconds:.3f}"
    )
    if outcome.verdict == "fail":
        failure = ElementTree.SubElement(case, "failure", message=outcome.why)
        failure.text = outcome.advice
    elif outcome.verdict in ("not applicable", "unfinished"):
        ElementTree.SubElement(case, "skipped", message=outcome.why)
    else:
        ElementTree.SubElement(case, "system-out").text = f"{outcome.verdict}: {outcome.why}"
