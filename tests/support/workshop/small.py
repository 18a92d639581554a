"""A small exercise for tests: a congestion controller, one run of one iteration, a check that it ends."""

from __future__ import annotations

import pathlib
import shutil

import yaml

from mrc_topo.shipped import shipped
from mrc_workshop import exercise
from mrc_workshop.exercise import Exercise

POLITE = """
from mrc_host.policy import Nscc

class Mine(Nscc):
    pass
"""
STARTER = POLITE.replace(
    "    pass", "    def __init__(self, *given, **named):\n        raise NotImplementedError('yours')"
)
#: Wrong answers by name: what takes the place of `pass`, and what the check says of it.
WRONG = {
    "divides-by-zero": ("x = 1 // 0", "by zero"),
    "forgets-an-import": ("def __init__(self, *given, **named):\n        math.sqrt(2)", "name 'math' is not defined"),
    "no-such-class": ("pass\n\n\nMine = 3", "has no class Mine"),
}


def make(folder: pathlib.Path, cpu_s: int = 12) -> Exercise:
    """Write the exercise into a new folder, named like 50-policy."""
    shutil.copytree(shipped("workshop") / "TEMPLATE", folder)
    document = yaml.safe_load((folder / "exercise.yaml").read_text())
    run = document["runs"][0] | {"lab": "tiny", "policies": {"congestion": "policy:Mine"}}
    run["workload"]["params"]["iterations"] = 1
    run.pop("may_change")
    document |= {"edit": ["policy.py"], "language": "Python", "runs": [run]}
    document |= {"limits": {"cpu_s": cpu_s, "wall_s": 60, "memory_mb": 2048}}
    document |= {"seeds": {"visible": [1], "hidden": [2]}}
    document["runs"][0]["hidden"] = False
    document["checks"] = [{"kind": "finished", "statement": "it ends"}]
    (folder / "exercise.yaml").write_text(yaml.safe_dump(document))
    for part, text in (("starter", STARTER), ("solution", POLITE)):
        for other in (folder / part).iterdir():
            other.unlink()
        (folder / part / "policy.py").write_text(text)
    wrong = [
        {"name": name, "expected_text": said, "replace": [{"file": "policy.py", "old": "pass", "new": new}]}
        for name, (new, said) in WRONG.items()
    ]
    (folder / "wrong.yaml").write_text(yaml.safe_dump({"starter": "NotImplementedError", "wrong": wrong}))
    return exercise.load(folder)
