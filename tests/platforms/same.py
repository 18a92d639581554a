"""Compare the results of a run on two machines byte by byte: `python -m platforms.same FOLDER FOLDER`.

Left out are the report, the provenance of `result.json` and of `verdict.json`, and the software that a result lists:
these name the machine and say whether the protocol core is compiled.
Exit status: 0 (the same), 1 (a difference, named), 2 (usage).
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import sys

FILES = ("samples.npz", "events.jsonl.gz", "verdict.json", "result.json")


def content(path: pathlib.Path) -> bytes:
    """Return what is compared of a file."""
    data = path.read_bytes()
    if path.suffix != ".json":
        return data
    document = json.loads(data)
    document.pop("provenance", None)
    document.get("fidelity", {}).pop("software", None)
    return json.dumps(document).encode()


def differences(one: pathlib.Path, other: pathlib.Path) -> list[str]:
    """Return the names of the files that differ, or that one folder lacks."""
    found = []
    for name in FILES:
        paths = [folder / name for folder in (one, other)]
        if not all(path.is_file() for path in paths) or content(paths[0]) != content(paths[1]):
            found.append(name)
    return found


def main() -> int:
    """See the module's docstring."""
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    one, other = map(pathlib.Path, sys.argv[1:])
    found = differences(one, other)
    for name in FILES:
        if name in found:
            print(f"{name}: differs, or is missing")
        else:
            data = content(one / name)
            print(f"{name}: the same {len(data)} bytes, SHA-256 {hashlib.sha256(data).hexdigest()[:16]}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
