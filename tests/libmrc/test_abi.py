"""libmrc's declarations of `mrc.h` and `mrc_ctl.h`: the same layouts and numbers as in the headers that others have.

`MRCLAB_OCP` names a checkout of OCP's repository of MRC.
"""

from __future__ import annotations

import os
import pathlib
import re
import struct
import subprocess

import pytest

from libmrc import build
from mrc_host.node.programs.pairs import ATTRIBUTES
from mrc_host.proto.config import ReliabilityConfig
from mrc_host.verbs import layout
from support.libmrc import compiler, cross_compiler, emulator

OCP = pathlib.Path(os.environ.get("MRCLAB_OCP", "/nonexistent"))
MRC = build.INCLUDE / "mrc.h"
MRC_CTL = build.INCLUDE / "mrc_ctl.h"
#: Members of structures inside of structures.
NESTED = {
    "mrc_device_attr": ("wimm_attr.max_wimm", "wimm_attr.max_wimm_dest", "mpr_attr.max_mpr", "mpr_attr.mpr_resolution",
                        "qp_attr.max_qp_hint"),
    "mrc_qp_attr": ("mpr.mpr", "mpr.mpr_dest", "wimm.max_wimm", "wimm.max_wimm_dest", "profile.ev_profile_id",
                    "profile.cc_profile_id", "retry.linear_cnt", "retry.exp_cnt"),
    "mrc_ctl_device_attr": (
        *(f"ev.ev_{name}" for name in ("max_fmt_profiles", "max_profiles", "max_count", "free_count",
                                       "max_count_profile", "count_align", "max_width", "fmt_mode_mask", "mode_mask",
                                       "op_max_entries")),
        "cc.cc_max_profiles", "cc.algorithms",
    ),
    "mrc_ctl_ev_fmt_profile_attr": ("ev_fmt_op.op", "ev_fmt_op.fmt_fields", "ev_fmt_op.fmt_field_count"),
    "mrc_ctl_ev_profile_attr": ("ev_op.op", "ev_op.entries", "ev_op.entry_count", "ev_fields_op.op",
                                "ev_fields_op.fields", "ev_fields_op.field_count"),
    "mrc_ctl_ep_req": ("op.port_status_update.port_status",),
    "mrc_async_event": ("element.cq", "element.qp", "element.port_num"),
}  # fmt: skip


def structures(header: pathlib.Path) -> dict[str, list[str]]:
    """Return the outer members of each structure of a header."""
    text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL)
    found = {}
    for name, body in re.findall(r"^struct (\w+) \{\n(.*?)^\};", text, re.DOTALL | re.MULTILINE):
        outer = [line.strip() for line in re.sub(r"^\t\t.*\n", "", body, flags=re.MULTILINE).splitlines()]
        members = []
        for line in outer:
            match = re.search(r"\(\*(\w+)\)\(|(\w+)(?:\[\w+\])?(?: : \d+)?;$", line)
            if match and not line.startswith("struct {"):
                members.append(match[1] or match[2])
        found[name] = [member for member in members if not member.startswith(("unused_", "_dummy"))]
    return found


def constants(header: pathlib.Path) -> list[str]:
    """Return the names of a header's enumerations."""
    text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL)
    return [name for body in re.findall(r"^enum \w* ?\{(.*?)\};", text, re.DOTALL | re.MULTILINE)
            for name in re.findall(r"\b(MRC_\w+)\b(?=\s*[,=\n}]|\s*$)", body)]  # fmt: skip


def measured(
    folder: pathlib.Path,
    header: pathlib.Path,
    include: list[pathlib.Path],
    before: str = "",
    absent: str = "",
    runner: tuple[str, ...] = (),
) -> dict[str, int]:
    """Return sizes, offsets and constants of our header's names, as the compiler sees them in the headers of
    `include`. `before`: the first line of the program; `absent`: a member that this version lacks;
    `runner`: the command that runs a program of this compiler, if not the machine itself.
    """
    lines = [
        before,
        "#include <stdio.h>",
        "#include <stddef.h>",
        f"#include <{header.name}>",
    ]
    lines += ["int main(void) {"]
    for name, members in structures(header).items():
        lines.append(f'printf("{name} %zu\\n", sizeof(struct {name}));')
        for member in [*members, *NESTED.get(name, ())]:
            if f"{name}.{member}" == absent:
                continue
            lines.append(f'printf("{name}.{member} %zu\\n", offsetof(struct {name}, {member}));')
            lines.append(f'printf("{name}.{member}: %zu\\n", sizeof(((struct {name} *)0)->{member}));')
    lines += [f'printf("{name} %lld\\n", (long long){name});' for name in constants(header)]
    source = folder / "measure.c"
    source.write_text("\n".join([*lines, "return 0; }"]))
    program = folder / "measure"
    flags = [f"-I{path}" for path in include]
    subprocess.run([*compiler(), "-w", *flags, str(source), "-o", str(program)], check=True)
    said = subprocess.run([*runner, str(program)], check=True, capture_output=True, text=True).stdout
    return {name: int(number) for name, number in (line.rsplit(" ", 1) for line in said.splitlines())}


def test_every_layout_and_number_of_mrc_is_that_of_ocps_header(tmp_path: pathlib.Path) -> None:
    if not (OCP / "mrc.h").is_file():
        pytest.skip("MRCLAB_OCP names no checkout of OCP's repository")
    ours = measured(tmp_path, MRC, [build.INCLUDE])
    assert len(ours) > 90
    assert ours == measured(tmp_path, MRC, [OCP])


@pytest.mark.parametrize("version", ["1, 0, 0", "1, 0, 1"])
def test_every_layout_and_number_of_the_controllers_interface_is_that_of_ocps_header(
    tmp_path: pathlib.Path, version: str
) -> None:
    if not (OCP / "mrc_ctl.h").is_file():
        pytest.skip("MRCLAB_OCP names no checkout of OCP's repository")
    used = f"#define MRC_CTL_API_VER_USED MRC_CTL_API_VER({version})"
    absent = "mrc_ctl_ev_event.state" if version == "1, 0, 0" else ""
    ours = measured(tmp_path, MRC_CTL, [build.INCLUDE], used, absent)
    assert len(ours) > 150
    assert ours["mrc_ctl_ev_event"] == (48 if version.endswith("0") else 56)
    assert ours == measured(tmp_path, MRC_CTL, [OCP], used, absent)


@pytest.mark.parametrize(("header", "least"), [("mrc.h", 24), ("mrc_ctl.h", 14)])
def test_a_program_of_ocps_header_calls_every_function_of_it(tmp_path: pathlib.Path, header: str, least: int) -> None:
    """Each function that the header declares has our prototype, or the compiler refuses both together, and is there."""
    if not (OCP / header).is_file():
        pytest.skip("MRCLAB_OCP names no checkout of OCP's repository")
    text = re.sub(r"/\*.*?\*/", "", (OCP / header).read_text(), flags=re.DOTALL)
    names = sorted(set(re.findall(r"\b(mrc_\w+)\(", text)))
    assert len(names) >= least
    ours = re.sub(r"/\*.*?\*/", "", (build.INCLUDE / header).read_text(), flags=re.DOTALL)
    # Prototypes of both headers in one file must agree: structures come from the first.
    declarations = re.findall(r"^(?:int|void|struct \w+ \*)\s*\*?mrc_\w+\([^;]*\);", ours, re.DOTALL | re.MULTILINE)
    assert len(declarations) == len(names)
    body = "".join(f"p[{index}] = (void *){name};\n" for index, name in enumerate(names))
    source = tmp_path / "all.c"
    source.write_text(
        f"#include <{header}>\n"
        + "\n".join(declarations)
        + f"\nvoid *p[{len(names)}];\nint main(void) {{\n{body}return 0; }}"
    )
    library = build.library()
    subprocess.run(
        [*compiler(), "-Wall", "-Werror", f"-I{OCP}", str(source), "-o", str(tmp_path / "all"),
         f"-L{library}", "-lmrc", f"-Wl,-rpath,{library}"],
        check=True,
    )  # fmt: skip
    subprocess.run([str(tmp_path / "all")], check=True)


def test_only_public_functions_are_exported() -> None:
    library = build.library()
    said = subprocess.run(
        ["nm", "-D", "--defined-only", str(library / build.SONAME)], check=True, capture_output=True, text=True
    ).stdout
    names = {line.split()[-1] for line in said.splitlines()}
    assert {"mrc_create_qp", "ibv_get_device_list", "ibv_reg_mr_iova2", "dlvsym"} <= names
    assert all(re.match(r"mrc_|_?ibv_|(dlvsym|access|stat)$", name) for name in names)
    # A version would bind the library to one release of libibverbs.
    assert not [name for name in names if "@" in name]


def test_the_layout_of_rings_is_the_agents(tmp_path: pathlib.Path) -> None:
    """The C structures and numbers, against `mrc_host.verbs.layout`."""
    request = ("opcode", "flags", "elements", "number", "wr_id", "remote", "key", "immediate", "inline_bytes")
    completion = ("wr_id", "status", "opcode", "qp_num", "byte_len", "immediate", "flags", "ended")
    event = ("type", "element", "ev", "plane", "losses", "text")
    numbers = [f"RING_{opcode.name}" for opcode in layout.RingOpcode]
    numbers += ["LAYOUT_VERSION", "RING_HEAD_BYTES", "RING_TAIL", "RING_NOTED", "RING_HEAD", "MAX_SGE", "INLINE_BYTES"]
    lines = [f'printf("{name} %lld\\n", (long long){name});' for name in [*numbers, "EVENT_TEXT_BYTES"]]
    for kind, members in (("request", request), ("completion", completion), ("event", event)):
        for member in (*members, *(("operand", "swap", "data") if kind == "request" else ())):
            lines.append(f'printf("{kind}.{member} %zu\\n", offsetof(struct ring_{kind}, {member}));')
        lines.append(f'printf("{kind} %zu\\n", sizeof(struct ring_{kind}));')
    source = tmp_path / "layout.c"
    source.write_text(
        '#include <stdio.h>\n#include "layout.h"\n#include <stddef.h>\nint main(void) {\n' + "\n".join(lines) + "}"
    )
    subprocess.run([*compiler(), f"-I{build.SOURCES}", str(source), "-o", str(tmp_path / "layout")], check=True)
    said = subprocess.run([str(tmp_path / "layout")], check=True, capture_output=True, text=True).stdout
    found = {name: int(number) for name, number in (line.split() for line in said.splitlines())}
    expected = {f"RING_{opcode.name}": int(opcode) for opcode in layout.RingOpcode}
    expected |= {"LAYOUT_VERSION": layout.VERSION, "RING_HEAD_BYTES": layout.HEAD_BYTES, "RING_TAIL": layout.TAIL,
                 "RING_NOTED": layout.NOTED, "RING_HEAD": layout.HEAD, "MAX_SGE": layout.MAX_SGE,
                 "INLINE_BYTES": layout.INLINE_BYTES, "EVENT_TEXT_BYTES": layout.EVENT_TEXT_BYTES}  # fmt: skip
    for kind, members, form in (
        ("request", request, layout.REQUEST),
        ("completion", completion, layout.COMPLETION),
        ("event", event, layout.EVENT),
    ):
        codes = re.findall(r"\d*[A-Za-z]", form.format.lstrip("="))
        assert len(codes) == len(members)
        for index, member in enumerate(members):
            expected[f"{kind}.{member}"] = struct.calcsize("=" + "".join(codes[:index]))
    expected |= {"request.operand": layout.ATOMIC_AT, "request.swap": layout.ATOMIC_AT + 8,
                 "request.data": layout.ELEMENTS_AT, "request": layout.REQUEST_BYTES,
                 "completion": layout.COMPLETION_BYTES, "event": layout.EVENT_BYTES}  # fmt: skip
    assert found == expected


@pytest.mark.parametrize("header", [MRC, MRC_CTL], ids=lambda path: str(path.stem))
def test_layouts_and_numbers_on_arm64_are_those_of_this_machine(
    tmp_path: pathlib.Path, header: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = measured(tmp_path, header, [build.INCLUDE])
    monkeypatch.setenv("CC", cross_compiler(tmp_path))
    there = measured(tmp_path, header, [build.INCLUDE], runner=(emulator(),))
    assert len(there) > 90
    assert here == there


def test_the_number_attributes_of_queue_pairs_are_those_that_the_endpoint_lets_programs_set() -> None:
    text = (build.SOURCES / "pair.c").read_text()
    table = re.findall(r"^\tEACH\((\w+), ", text, re.MULTILINE)
    numbers = {name for name in ATTRIBUTES if type(getattr(ReliabilityConfig(), name)) is int}
    assert sorted(table) == sorted(numbers)
