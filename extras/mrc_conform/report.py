"""Reports of a run: a page, and JUnit's XML for continuous integration."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Final
from xml.etree import ElementTree

from mrc_conform.case import Area, Basis
from mrc_conform.run import CaseResult, Conformance, Verdict
from mrc_topo.base import look

_TEMPLATES: Final = pathlib.Path(__file__).parent / "templates"
#: The longest transcript that a page shows; the capture has all of it.
SHOWN_PACKETS: Final = 60


def summary(run: Conformance) -> str:
    """Return one sentence with the number of cases of each verdict that occurs."""
    counts = [f"{run.count(verdict)} {verdict.value}" for verdict in Verdict if run.count(verdict)]
    return f"{len(run.results)} cases against {run.device}: {', '.join(counts)}"


def by_area(run: Conformance) -> Mapping[Area, Mapping[Verdict, int]]:
    """Return the number of cases of each area and verdict, without areas that have none."""
    table: dict[Area, dict[Verdict, int]] = {}
    for result in run.results:
        row = table.setdefault(result.case.area, dict.fromkeys(Verdict, 0))
        row[result.verdict] += 1
    return table


def page(run: Conformance, captures: Mapping[str, str]) -> str:
    """Return the report as a page that needs no other file; `captures` has the file of a case's packets by its name."""
    body = look.fill(
        _TEMPLATES,
        "conform.html",
        run=run,
        summary=summary(run),
        table=by_area(run),
        verdicts=list(Verdict),
        wrong=[each for each in run.results if each.wrong],
        captures=captures,
        shown=SHOWN_PACKETS,
        ours=Basis.OURS,
        source=source,
    )
    return look.page("Conformance", body, rules="td{font-size:.92rem} pre{overflow-x:auto} summary{cursor:pointer}")


def source(result: CaseResult) -> str:
    """Return where the rule of a case stands."""
    return f"{result.case.basis.value}, {result.case.clause}"


def junit(run: Conformance) -> str:
    """Return the run as JUnit's XML: a test suite for each area; a difference is a skipped test with its text."""
    root = ElementTree.Element("testsuites", name=f"mrclab conform: {run.device}", time=f"{run.seconds:.3f}")
    suites: dict[Area, ElementTree.Element] = {}
    for result in run.results:
        area = result.case.area
        if area not in suites:
            suites[area] = ElementTree.SubElement(root, "testsuite", name=area.value)
        test = ElementTree.SubElement(
            suites[area],
            "testcase",
            classname=f"conform.{area.name.lower()}",
            name=result.case.name,
            time=f"{result.seconds:.4f}",
        )
        if result.verdict is Verdict.FAILED:
            ElementTree.SubElement(test, "failure", message=result.text).text = f"{result.case.rule}\n{source(result)}"
        elif result.verdict is Verdict.ERROR:
            ElementTree.SubElement(test, "error", message=result.text.strip().splitlines()[-1]).text = result.text
        elif result.verdict is not Verdict.PASSED:
            ElementTree.SubElement(test, "skipped", message=f"{result.verdict.value}: {result.text}")
    for area, counts in by_area(run).items():
        suite = suites[area]
        suite.set("tests", str(sum(counts.values())))
        suite.set("failures", str(counts[Verdict.FAILED]))
        suite.set("errors", str(counts[Verdict.ERROR]))
        suite.set("skipped", str(counts[Verdict.SKIPPED] + counts[Verdict.DIFFERENT]))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
