"""Who does not solve an exercise, but tries to be graded as if: by the simulation's truth, forged facts, lies.

`truth`, `job`, `patched` and `forged-facts` have full marks where a learner's Python shares its process with the
simulation.
"""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator

import pytest
import yaml

from mrc_topo.shipped import shipped
from mrc_workshop import exercise, grade
from mrc_workshop.exercise import Exercise
from support.amount import LONG, only

pytestmark = pytest.mark.slow

LINK = "p0-t0.1--p0-t1.0"
#: What names nothing, and so fails; cheats come before it or instead of it.
HONEST = """
from mrclab.lab.management.clustermapper import Finding
from mrc_host.policy import EvSet

class Paths(EvSet): pass

class Finder:
    def locate(self, topology, views): return []
"""
UNNAMED = f"{LINK} broke, nothing was named"
CHEATS: dict[str, tuple[str, str]] = {
    # Frames above a call, and all objects there are, have what is broken: in the results of the run.
    "truth": (
        """
        import gc, sys
        class Finder:
            def locate(self, topology, views):
                around, frame = [], sys._getframe()
                while frame is not None:
                    around += list(frame.f_locals.values())
                    frame = frame.f_back
                for each in [*around, *gc.get_objects()]:
                    if type(each).__name__ == "RunResult" and each.happenings:
                        return [Finding(name, "dead", ()) for name in each.happenings[-1].broken]
                return []
        """,
        UNNAMED,
    ),
    # The schedule of the job, or of the exercise, has the answer; hidden seeds are there, too.
    "job": (
        """
        import glob
        class Finder:
            def locate(self, topology, views):
                jobs = glob.glob("/tmp/mrclab-workshop-*/**/job.json", recursive=True)
                for path in ["job.json", "{exercise}/exercise.yaml", *jobs]:
                    try:
                        text = open(path).read()
                    except OSError:
                        continue
                    if "link_down" in text:
                        return [Finding("{link}", "dead", ())]
                return []
        """,
        UNNAMED,
    ),
    "patched": (
        """
        import json
        from mrc_workshop import judge, perform
        from mrc_workshop.kinds import catalogue, policies
        real = perform._facts
        def forged(*given, **more):
            for each in more.get("document", {{}}).get("happenings", []):
                each["localised"] = each["broken"]
            return real(*given, **more)
        perform._facts = forged
        catalogue.judge = policies.localised = judge._judge = lambda *given: catalogue.Finding(True, "all is well")
        print(json.dumps({{"exercise": "50-finder", "passed": True, "reason": ""}}))
        """,
        UNNAMED,
    ),
    "forged-facts": (
        """
        import json, os
        class Finder:
            def locate(self, topology, views):
                try:
                    job = json.load(open("job.json"))
                except OSError:
                    job = {{"orders": [{{"name": "finder", "seed": 1, "hidden": False}}]}}
                happening = {{"broken": ["{link}"], "localised": ["{link}"]}}
                runs = [{{key: each[key] for key in ("name", "seed", "hidden")}} for each in job["orders"]]
                for each in runs:
                    each["document"] = {{"happenings": [happening]}}
                os.makedirs("out", exist_ok=True)
                json.dump({{"runs": runs}}, open("out/facts.json", "w"))
                os._exit(0)
        """,
        "finder.py: Finder.locate: its process ended before it had answered",
    ),
    # The checks of what a policy returns are in its own process, where it can take them away, and in ours.
    "unwatched": (
        """
        import mrc_host.policy
        for _, judges in mrc_host.policy.KINDS.values():
            judges.update(dict.fromkeys(judges, lambda *given: ""))
        class Paths(EvSet):
            def choose(self, plane, avoid=-1):
                return self.order[1 - plane][0]
        """,
        "finder.py: Paths.choose: returned EV",
    ),
    # Whoever writes to the socket himself answers with something else at best.
    "noise": (
        """
        import os, stat
        class Finder:
            def locate(self, topology, views):
                for number in range(3, 4096):
                    try:
                        if stat.S_ISSOCK(os.fstat(number).st_mode):
                            os.write(number, b"\\xff" * 64)
                    except OSError:
                        pass
                return []
        """,
        "its process answered with nonsense: a message of 4294967295 bytes",
    ),
}


#: Each does what the others do not.
SHORT = ("patched", "noise")


@pytest.fixture(scope="module")
def one() -> Iterator[Exercise]:
    """Yield an exercise in which a link fails and must be named. As in an installed mrclab, every user may read it."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as base:
        pathlib.Path(base).chmod(0o755)
        yield _finder(pathlib.Path(base) / "50-finder")


def _finder(folder: pathlib.Path) -> Exercise:
    shutil.copytree(shipped("workshop") / "TEMPLATE", folder)
    shutil.copyfile(shipped("workshop") / "09-localisation" / "lab.yaml", folder / "lab.yaml")
    document = yaml.safe_load((folder / "exercise.yaml").read_text())
    run = {
        "name": "finder",
        "lab": "lab.yaml",
        "policies": {"ev": "finder:Paths", "localiser": "finder:Finder"},
        "workload": {"name": "write_lat", "hosts": ["h0", "h2"], "duration": 0.8},
        "schedule": [{"at": 0.2, "fail": LINK, "kind": "link_down", "evidence": {"carried": 0.99}}],
    }
    document |= {"edit": ["finder.py"], "language": "Python", "runs": [run], "seeds": {"visible": [1], "hidden": [7]}}
    document["checks"] = [{"kind": "localised", "statement": "the failure is named"}]
    (folder / "exercise.yaml").write_text(yaml.safe_dump(document))
    for part in ("starter", "solution"):
        (folder / part / "finder.py").write_text(HONEST)
    return exercise.load(folder)


@pytest.fixture(scope="module")
def grades(one: Exercise, tmp_path_factory: pytest.TempPathFactory) -> dict[str, grade.Grade]:
    """Those of a class of cheats."""
    base = tmp_path_factory.mktemp("class")
    for name, (code, _) in CHEATS.items():
        if not LONG and name not in SHORT:
            continue
        (base / "submissions" / name).mkdir(parents=True)
        shown = textwrap.dedent(code).format(exercise=one.folder, link=LINK)
        (base / "submissions" / name / "finder.py").write_text(HONEST + shown)
    return {each.submission: each for each in grade.grade(base / "submissions", base / "grades.csv", only=one, jobs=2)}


def _can_confine() -> bool:
    probe = [sys.executable, "-P", "-m", "mrclab.lab.processes.launch", "--probe"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not _can_confine(), reason="this machine gives no namespaces")
@pytest.mark.parametrize("name", only(CHEATS, SHORT))
def test_dishonest_submission_fails_and_is_told_why(grades: dict[str, grade.Grade], name: str) -> None:
    found = grades[name]
    assert not found.passed, found
    assert CHEATS[name][1] in found.reason, found
    assert found.isolated == "yes"
