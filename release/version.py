"""The version of `p4lite` and `mrclab`, from the git tag of the commit; the build backend asks for it.

`v1.2.3` on the commit gives 1.2.3; five commits later it is 1.2.4.dev5+gHASH, a version that sorts before the next
release. Without a tag, without git, or in a folder that is no checkout, it is `NEXT`.dev0, with the hash where there is
one. A source distribution has its version in PKG-INFO, which the build backend reads instead.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
#: The first release, which no tag names yet; CHANGELOG.md begins with it.
NEXT: Final = "0.1.0"
GIT_S: Final = 10.0
_DESCRIBED: Final = re.compile(r"v(\d+)\.(\d+)\.(\d+)((?:a|b|rc)\d+)?-(\d+)-g([0-9a-f]+)(-dirty)?")


def _git(root: Path, *words: str) -> str:
    """Return what git says in a folder; empty where git or the repository is missing, or refuses to answer."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, timeout=GIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def version(root: Path = ROOT) -> str:
    """Return the version of a checkout.

    A source tree that lies in the repository of something else is no checkout of ours, so the repository must begin at
    `root`.
    """
    top = _git(root, "rev-parse", "--show-toplevel")
    if not top or Path(top).resolve() != root.resolve():
        return f"{NEXT}.dev0"
    described = _git(root, "describe", "--tags", "--long", "--dirty", "--match", "v[0-9]*")
    found = _DESCRIBED.fullmatch(described)
    if found is None:
        commit = _git(root, "rev-parse", "--short=8", "HEAD")
        return f"{NEXT}.dev0+g{commit}" if commit else f"{NEXT}.dev0"
    major, minor, patch, stage, distance, commit, dirty = found.groups()
    if distance == "0" and not dirty:
        return f"{major}.{minor}.{patch}{stage or ''}"
    # A release candidate is followed by its release, a release by the next patch.
    following = int(patch) + (0 if stage else 1)
    return f"{major}.{minor}.{following}.dev{distance}+g{commit}"


def requirement(mine: str) -> str:
    """Return what `mrclab` of a version requires of `p4lite`: a release the same one, a checkout any that is installed.

    A checkout's version changes with each commit, while both packages stay installed as they were. If it required an
    equal version, pip would look for it in the registry, which has none.
    """
    release = re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", mine) is not None
    return f"p4lite=={mine}" if release else f"p4lite>={NEXT}.dev0"
