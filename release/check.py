"""Build both distributions as a release would, and check them: `make release-check`.

Each check prints one line. What was built lies in `dist` afterwards: source distributions, wheels, the SBOM, the list
of licences and SHA256SUMS. Exit status: 0, 1 (a check failed), 2 (an unknown check, or no git checkout).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from email.parser import HeaderParser
from pathlib import Path
from typing import Final

from packaging.version import Version

ROOT: Final = Path(__file__).resolve().parents[1]
DIST: Final = ROOT / "dist"
VENDOR: Final = Path("controller/mrclab/web/static/vendor")
#: What the wheel of mrclab holds beside its packages, and each of its source distribution.
IN_WHEEL: Final = (
    "mrc_topo/data/mrc.lua",
    "mrc_topo/data/CHANGELOG.md",
    "mrc_topo/data/programs/fabric.p4",
    "mrc_topo/data/labs/tiny.yaml",
    "mrclab/web/static/vendor/cytoscape.LICENSE.txt",
)
IN_SDIST: Final = ("CHANGELOG.md", "README.md", "LICENSE", "docs/mrc.lua", "conftest.py", "release/hook.py")
IN_P4LITE: Final = (
    "p4lite/py.typed",
    "p4lite/compiler/grammar.lark",
    "p4lite/compiler/include/v1model.p4",
    "p4lite/switch/core/fabric/fabric.h",
    "p4lite_tools/py.typed",
)
#: Which wheels `make wheels` makes.
IDENTIFIERS: Final = tuple(
    f"cp3{minor}-manylinux_{machine}" for minor in (11, 12, 13, 14) for machine in ("aarch64", "x86_64")
)
#: Words of licences that Apache-2.0 code may depend on when it is distributed apart from them.
LICENCES: Final = re.compile(
    r"Apache|BSD|MIT\b|MIT-CMU|ISC|PSF|Python Software Foundation|Mozilla|MPL|Unlicense|HPND|LGPL|GPL-?v?2|"
    r"GNU General Public License v2|GNU Lesser|Public Domain|0BSD|CC0",
    re.IGNORECASE,
)


#: What people who train models install beside mrclab; torch, which is large, has no part in protobuf's version.
BESIDE: Final = ("onnx", "tensorboard", "opentelemetry-proto", "grpcio-status")


class CheckError(Exception):
    """A check failed; the text says why and what to do."""


class NotCheckedError(Exception):
    """A check cannot be carried out here; the text says why."""


def run(*command: str | Path, cwd: Path, more: Mapping[str, str] | None = None, timeout_s: float = 1800) -> str:
    """Run a command and return its standard output. Raises CheckError with its last lines if it fails."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words, cwd=cwd, env=kept | dict(more or {}), capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CheckError(f"{' '.join(words)}: {error}") from None
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-12:])
        raise CheckError(f"{' '.join(words)}: exit status {done.returncode}\n{said}")
    return done.stdout


def sha256(path: Path) -> str:
    """Return the digest of a file in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def offline() -> list[str]:
    """Return the words before a command that give it no network; none where the machine grants no namespaces."""
    words = ["unshare", "--user", "--map-root-user", "--net"]
    try:
        done = subprocess.run([*words, "true"], capture_output=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return words if done.returncode == 0 else []


def names(archive: Path) -> set[str]:
    """Return the files of a wheel, or those of a source distribution without their first folder."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return set(wheel.namelist())
    with tarfile.open(archive) as sdist:
        return {member.name.partition("/")[2] for member in sdist.getmembers() if member.isfile()}


def requirements(wheel: Path) -> list[str]:
    """Return what a wheel requires, as its metadata have it."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        return HeaderParser().parsestr(archive.read(name).decode()).get_all("Requires-Dist") or []


class Release:
    """One release: built from clean copies of HEAD in `scratch`, collected in `dist`."""

    def __init__(self, scratch: Path, dist: Path = DIST) -> None:
        self.scratch = scratch
        self.dist = dist
        self.tools = Path(sys.executable).parent
        self.venv = scratch / "venv"
        self.isolation = offline()
        self.commit = run("git", "rev-parse", "HEAD", cwd=ROOT).strip()

    def tool(self, name: str) -> Path:
        """Return the command of a tool of `release/requirements.txt`."""
        return self.tools / name

    def one(self, pattern: str) -> Path:
        """Return the only file of `dist` that a pattern fits."""
        found = sorted(self.dist.glob(pattern))
        if len(found) != 1:
            raise CheckError(f"{self.dist}/{pattern}: {len(found)} files instead of one; the builds failed above")
        return found[0]

    @property
    def version(self) -> str:
        """The version that the file names have."""
        return self.one("mrclab-*.tar.gz").name.removeprefix("mrclab-").removesuffix(".tar.gz")

    @property
    def compiled(self) -> Path:
        """The wheel with the compiled core."""
        return self.one("mrclab-*-cp3*.whl")

    @property
    def pure(self) -> Path:
        """The wheel of mrclab for every machine."""
        return self.one("mrclab-*-none-any.whl")

    def build(self, name: str) -> Path:
        """Build all distributions from a copy of HEAD, without a network where the machine can take it away.

        Wheels are made from the unpacked source distributions, as pip makes them.

        Returns:
            The folder of five files: two source distributions and three wheels.
        """
        source, made = self.scratch / name / "source", self.scratch / name / "dist"
        run("git", "clone", "--quiet", "--no-local", ROOT, source, cwd=self.scratch)
        run("git", "checkout", "--quiet", self.commit, cwd=source)
        if not (ROOT / VENDOR).is_dir():
            raise CheckError(f"{VENDOR} is missing, which wheels carry: run `make web-assets`")
        shutil.copytree(ROOT / VENDOR, source / VENDOR)
        epoch = run("git", "log", "-1", "--format=%ct", cwd=source).strip()
        more = {"SOURCE_DATE_EPOCH": epoch, "PIP_NO_INDEX": "1"}
        build = [*self.isolation, sys.executable, "-m", "build", "--no-isolation"]
        for folder in (source / "p4", source):
            run(*build, "--sdist", "--outdir", made, folder, cwd=self.scratch, more=more)
        for sdist in sorted(made.glob("*.tar.gz")):
            with tarfile.open(sdist) as archive:
                # Debian 12's Python 3.11.2 has no filters. None is needed: this archive was made just now.
                archive.extraction_filter = getattr(tarfile, "data_filter", None)
                archive.extractall(source.parent)
            unpacked = source.parent / sdist.name.removesuffix(".tar.gz")
            for pure in ("1", "0") if sdist.name.startswith("mrclab-") else ("1",):
                run(*build, "--wheel", "--outdir", made, unpacked, cwd=self.scratch, more={**more, "MRCLAB_PURE": pure})
        return made

    def builds(self) -> str:
        """Build once and collect what was made."""
        made = self.build("first")
        shutil.rmtree(self.dist, ignore_errors=True)
        shutil.copytree(made, self.dist)
        where = "without a network" if self.isolation else "with a network: the machine grants no namespaces"
        return f"{len(list(self.dist.iterdir()))} files of version {self.version}, {where}"

    def reproduces(self) -> str:
        """Build again, in another folder and for a user with another umask; sdists and wheels must have the same
        bytes.
        """
        before = os.umask(0o077)
        try:
            again = self.build("second folder")
        finally:
            os.umask(before)
        other = {path.name: sha256(path) for path in again.iterdir()}
        mine = {path.name: sha256(path) for path in self.dist.iterdir() if path.suffix in (".gz", ".whl")}
        if other != mine:
            changed = sorted(name for name in mine | other if mine.get(name) != other.get(name))
            raise CheckError(f"other bytes the second time: {changed}")
        return f"{len(mine)} files have the same bytes"

    def versions(self) -> str:
        """Compare the versions of both distributions, of the tag and of the change log."""
        found = {path.name.split("-")[1].removesuffix(".tar.gz") for path in self.dist.iterdir()}
        if len(found) != 1:
            raise CheckError(f"the distributions have different versions: {sorted(found)}")
        wanted = next((each for each in requirements(self.pure) if each.startswith("p4lite")), "nothing")
        tags = run("git", "tag", "--points-at", "HEAD", cwd=ROOT).split()
        if f"v{self.version}" in tags:
            if wanted != f"p4lite=={self.version}":
                raise CheckError(f"mrclab {self.version} requires {wanted} instead of p4lite=={self.version}")
            top = re.search(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
            if top is None or top[1].split()[0] != self.version or "unreleased" in top[1]:
                raise CheckError(
                    f"CHANGELOG.md does not begin with {self.version}: name the release and its date there"
                )
            return f"{self.version}, as the tag says"
        if ".dev" not in self.version:
            raise CheckError(f"version {self.version}, but no tag v{self.version} is on HEAD")
        return f"{self.version}, no release: no tag is on HEAD"

    def contents(self) -> str:
        """Look for the files that users need, and for such as must not be shipped."""
        p4lite = self.one("p4lite-*.whl")
        wanted: dict[Path, tuple[str, ...]] = {self.pure: IN_WHEEL, self.compiled: IN_WHEEL, p4lite: IN_P4LITE}
        wanted[self.one("mrclab-*.tar.gz")] = IN_SDIST
        wanted[self.one("p4lite-*.tar.gz")] = (*IN_P4LITE, "README.md", "LICENSE", "pyproject.toml")
        readmes = [path.relative_to(ROOT / "workshop").as_posix() for path in (ROOT / "workshop").glob("*/README.md")]
        for archive, files in wanted.items():
            held = names(archive)
            missing = set(files) - held
            if archive.name.startswith("mrclab-") and archive.suffix == ".whl":
                missing |= {f"mrc_topo/data/workshop/{each}" for each in readmes} - held
            odd = {
                each for each in held if "__pycache__" in each or (each.endswith(".so") and archive != self.compiled)
            }
            if archive.name.startswith("mrclab-"):
                odd |= {each for each in held if each.startswith(("p4lite/", "p4lite_tools/", "p4/p4lite"))}
            if missing or odd:
                raise CheckError(f"{archive.name}: lacks {sorted(missing)}, must not hold {sorted(odd)}")
        libraries = [each for each in names(self.compiled) if each.endswith(".so")]
        if not libraries:
            raise CheckError(f"{self.compiled.name} has no compiled module")
        return f"{len(names(self.pure))} files in the pure wheel, {len(libraries)} libraries in the compiled one"

    def twine(self) -> str:
        """Have twine check the metadata and the READMEs."""
        run(self.tool("twine"), "check", "--strict", *sorted(self.dist.glob("*-*.*")), cwd=ROOT)
        return "metadata and READMEs can be shown"

    def wheel_contents(self) -> str:
        """Have check-wheel-contents look at each wheel."""
        check = self.tool("check-wheel-contents")
        run(check, "--config", ROOT / "pyproject.toml", self.pure, self.compiled, cwd=ROOT)
        run(check, "--no-config", "--toplevel", "p4lite,p4lite_tools", self.one("p4lite-*.whl"), cwd=ROOT)
        return "3 wheels"

    def cibuildwheel(self) -> str:
        """Ask cibuildwheel which wheels the configuration makes; no container is started."""
        listed: set[str] = set()
        for machine in ("x86_64", "aarch64"):
            words = ("--print-build-identifiers", "--platform", "linux", "--archs", machine)
            listed |= set(run(self.tool("cibuildwheel"), *words, ROOT, cwd=ROOT).split())
        if listed != set(IDENTIFIERS):
            raise CheckError(f"other wheels than wanted: {sorted(listed ^ set(IDENTIFIERS))}")
        return f"{len(listed)} wheels for x86-64 and arm64"

    def install(self, *packages: str | Path, venv: Path | None = None) -> Path:
        """Install packages into an environment (default: the fresh one of this release), and return that.

        What we built has no other source than `dist`.
        """
        uv, venv = self.tool("uv"), venv or self.venv
        if not venv.is_dir():
            run(uv, "venv", "--quiet", "--python", sys.executable, venv, cwd=self.scratch)
        words = ("pip", "install", "--quiet", "--python", venv / "bin/python", "--find-links", self.dist)
        run(uv, *words, "--prerelease", "if-necessary-or-explicit", *packages, cwd=self.scratch)
        return venv

    def shown(self, venv: Path, folder: str) -> None:
        """Run the demonstration in simulated time from an environment, in a new folder."""
        (self.scratch / folder).mkdir()
        run(venv / "bin/mrclab", "demo", "--clock", "virtual", cwd=self.scratch / folder)

    def workflows(self) -> str:
        """Compare the GitHub workflows with their schema."""
        files = sorted((ROOT / ".github/workflows").glob("*.yml"))
        run(self.tool("check-jsonschema"), "--builtin-schema", "vendor.github-workflows", *files, cwd=ROOT)
        return f"{len(files)} files fit the schema of GitHub's workflows"

    def sdist_by_pip(self) -> str:
        """Have pip build the source distribution as it does for users: apart from this environment, with the core."""
        made = self.scratch / "by pip"
        words = ("wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--wheel-dir", made)
        run(sys.executable, "-m", "pip", *words, self.one("mrclab-*.tar.gz"), cwd=self.scratch)
        found = [path.name for path in made.iterdir()]
        if found != [self.compiled.name]:
            raise CheckError(f"pip made {found} instead of {self.compiled.name}")
        return f"{self.compiled.name}, built in an environment of pip's own"

    def p4lite_alone(self) -> str:
        """Compile a program and run packets through it where nothing of mrclab is installed."""
        self.install(self.one("p4lite-*.whl"))
        python, command = self.venv / "bin/python", self.venv / "bin/p4lite"
        code = "import importlib.util as i; print(i.find_spec('mrc_topo') or i.find_spec('mrc_host'))"
        if run(python, "-c", code, cwd=self.scratch).strip() != "None":
            raise CheckError("the environment has packages of mrclab")
        program, tests = ROOT / "p4/programs/fabric.p4", ROOT / "tests/p4/fabric"
        run(command, "compile", program, "-o", "fabric.json", "--p4info", "fabric.txtpb", cwd=self.scratch)
        run(command, "stf", program, tests / "srv6_shift.stf", "--priority-queues", "8", cwd=self.scratch)
        return "compiles fabric.p4 and forwards the packets of srv6_shift.stf"

    def demo(self) -> str:
        """Install the compiled wheel and run the demonstration in simulated time, in an empty folder."""
        self.install(self.compiled)
        said = run(self.venv / "bin/mrclab", "--version", cwd=self.scratch).strip()
        if self.version not in said or "protocol core compiled" not in said:
            raise CheckError(f"`mrclab --version` of the compiled wheel: {said}")
        self.shown(self.venv, "anywhere")
        return said

    def size(self) -> str:
        """Measure what the compiled wheel brings: packages, megabytes, and the time until the command has begun."""
        venv = self.install(self.compiled, venv=self.scratch / "size")
        (site,) = (venv / "lib").glob("python3*/site-packages")
        packages = len(list(site.glob("*.dist-info")))
        megabytes = sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) / 1e6
        times = {}
        for name, words in {"python": ("python", "-c", "pass"), "mrclab": ("mrclab", "--version")}.items():
            taken = []
            for _ in range(6):
                started = time.perf_counter()
                run(venv / "bin" / words[0], *words[1:], cwd=self.scratch)
                taken.append(time.perf_counter() - started)
            times[name] = min(taken)
        started_s = times["mrclab"] - times["python"]
        return f"{packages} packages, {megabytes:.0f} MB; `mrclab --version` imports for {started_s * 1e3:.0f} ms"

    def beside(self) -> str:
        """Install mrclab beside packages that want a protobuf of today, and run the demonstration."""
        venv = self.install(self.compiled, *BESIDE, venv=self.scratch / "beside")
        self.shown(venv, "beside others")
        code = "import google.protobuf as p; from google.protobuf.internal import api_implementation as a"
        said = run(venv / "bin/python", "-c", f"{code}; print(p.__version__, 'by', a.Type())", cwd=self.scratch)
        return f"{', '.join(BESIDE)}: protobuf {said.strip()}"

    def lowest(self) -> str:
        """Install the lowest versions that are allowed, run the demonstration, and write table entries over gRPC."""
        wheels = self.one("p4lite-*.whl"), self.pure
        # What a wheel requires would be indirect for the resolver, and of that it takes the newest.
        direct = [text for wheel in wheels for text in requirements(wheel) if "extra ==" not in text]
        direct = [text for text in direct if not text.startswith("p4lite")]
        venv = self.install("--resolution", "lowest-direct", *wheels, *direct, venv=self.scratch / "lowest")
        frozen = run(self.tool("uv"), "pip", "freeze", "--quiet", "--python", venv / "bin/python", cwd=self.scratch)
        pins = dict(line.split("==") for line in frozen.lower().split() if "==" in line)
        bounds = [match for text in direct if (match := re.match(r"([\w.-]+)>=([\w.]+)", text))]
        higher = [
            found[0] for found in bounds if Version(pins[found[1].lower().replace("_", "-")]) != Version(found[2])
        ]
        if higher or not bounds:
            raise CheckError(f"higher versions were installed than {', '.join(sorted(set(higher)))}")
        self.shown(venv, "with the lowest")
        run(venv / "bin/python", "-m", "benchmarks", "--smoke", "p4runtime", cwd=ROOT)
        return f"{len(set(pins))} packages, {len({match[1] for match in bounds})} of them at their lowest version"

    def audit(self) -> str:
        """Look for known weaknesses of the packages of requirements.lock."""
        words = ("--requirement", ROOT / "requirements.lock", "--disable-pip", "--format", "json")
        done = subprocess.run(
            [self.tool("pip-audit"), *words, "--progress-spinner", "off"], capture_output=True, text=True, check=False
        )
        try:
            rows = json.loads(done.stdout)["dependencies"]
        except ValueError:
            last = (done.stderr.strip().splitlines() or ["no answer"])[-1]
            raise NotCheckedError(f"no advisory data: {last}") from None
        weak = [f"{row['name']} {row['version']}: {each['id']}" for row in rows for each in row.get("vulns", ())]
        if weak:
            raise CheckError(f"{', '.join(weak)}: raise the lower bounds above these versions, and run `make lock`")
        unknown = [row["name"] for row in rows if "skip_reason" in row]
        if len(unknown) == len(rows):
            raise NotCheckedError(f"no advisory data for any of {len(rows)} packages: is there a network?")
        more = f"; no advisory data for {', '.join(unknown)}" if unknown else ""
        return f"{len(rows) - len(unknown)} packages have no known weakness{more}"

    def sbom(self) -> str:
        """Write the SBOM of mrclab and all that it needs, in CycloneDX, without a serial number or a time."""
        file = self.dist / f"mrclab-{self.version}.cdx.json"
        words = ("environment", "--output-reproducible", "--output-format", "JSON", "--output-file", file)
        run(self.tool("cyclonedx-py"), *words, self.venv / "bin/python", cwd=self.scratch)
        document = json.loads(file.read_text(encoding="utf-8"))
        held = {each["name"] for each in document["components"]}
        if document["bomFormat"] != "CycloneDX" or not {"mrclab", "p4lite", "grpcio"} <= held:
            raise CheckError(f"{file.name} names {len(held)} components, and not mrclab, p4lite and grpcio among them")
        return f"{len(held)} components"

    def licences(self) -> str:
        """Write the licences of all packages, and refuse those that `LICENCES` does not know."""
        words = ("--python", str(self.venv / "bin/python"), "--format", "json", "--with-urls", "--from", "mixed")
        found = json.loads(run(self.tool("pip-licenses"), *words, cwd=self.scratch))
        lines = [f"{each['Name']} {each['Version']}: {each['License']} ({each['URL']})" for each in found]
        (self.dist / f"licences-{self.version}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        unknown = [f"{each['Name']}: {each['License']}" for each in found if not LICENCES.search(each["License"])]
        if unknown:
            raise CheckError(f"licences of an unknown kind: {unknown}; read them, and add them to LICENCES if they fit")
        return f"{len(found)} packages"

    def sums(self) -> str:
        """Write the digests of all files."""
        files = sorted(path for path in self.dist.iterdir() if path.name != "SHA256SUMS")
        (self.dist / "SHA256SUMS").write_text(
            "".join(f"{sha256(path)}  {path.name}\n" for path in files), encoding="utf-8"
        )
        return f"{len(files)} files"


#: What `make release-check` runs, in this order: the name of each check and its method.
CHECKS: Final[Mapping[str, Callable[[Release], str]]] = {
    "build": Release.builds,
    "versions": Release.versions,
    "contents": Release.contents,
    "twine check": Release.twine,
    "check-wheel-contents": Release.wheel_contents,
    "cibuildwheel": Release.cibuildwheel,
    "workflows": Release.workflows,
    "sdist by pip": Release.sdist_by_pip,
    "p4lite alone": Release.p4lite_alone,
    "mrclab demo": Release.demo,
    "size": Release.size,
    "beside others": Release.beside,
    "lowest versions": Release.lowest,
    "audit": Release.audit,
    "SBOM": Release.sbom,
    "licences": Release.licences,
    "same bytes": Release.reproduces,
    "SHA256SUMS": Release.sums,
}


def main(chosen: Sequence[str] = ()) -> int:
    """Run the checks, or those whose names are given; see the module's docstring."""
    unknown = set(chosen) - set(CHECKS)
    if unknown or shutil.which("git") is None or not (ROOT / ".git").exists():
        why = f"no checks: {sorted(unknown)}" if unknown else f"{ROOT} is no git checkout, or git is missing"
        print(f"release-check: {why}", file=sys.stderr)
        return 2
    if run("git", "status", "--porcelain", cwd=ROOT).strip():
        print("release-check: uncommitted changes are left out; HEAD is what is built", file=sys.stderr)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="mrclab-release-") as scratch:
        release = Release(Path(scratch))
        for name, check in CHECKS.items():
            if chosen and name not in chosen:
                continue
            started = time.monotonic()
            try:
                word, said = "ok", check(release)
            except NotCheckedError as error:
                word, said = "NOT RUN", str(error)
            except CheckError as error:
                word, said = "FAILED", str(error)
                failed += 1
            print(f"{word:7} {name} ({time.monotonic() - started:.0f} s): {said}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
