"""Loading and building: bad input gets one clear line; the cache; the compiler that is missing or fails."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest

from p4lite.switch.errors import BuildError, ProgramError
from p4lite.switch.native.build import build, cache_dir
from p4lite.switch.runtime.loader import load_program
from p4lite_tools.fuzz import campaign as fuzz
from support.switch.bmv2_json import Doc, assign, expr, extract, fld, hdr, num, param, prim, stack
from support.switch.runner import Runner


def rich_doc() -> Doc:
    """Return a bit of everything."""
    doc = Doc()
    doc.header("eth", [("dst", 48), ("src", 48), ("type", 16)])
    doc.header("ip", [("v", 4), ("n", 4), ("src", 128), ("sum", 16), ("opt", "*")], max_length=40)
    doc.stack("s", [("bos", 1), ("x", 23)], 3)
    doc.union("u", {"a": [("x", 8)], "b": [("y", 16)]})
    doc.meta("m", [("v", 9), ("w", 200), ["i", 8, True]])
    doc.extra["parse_vsets"] = [{"name": "vs", "id": 0, "compressed_bitwidth": 16}]
    doc.extra["register_arrays"] = [{"name": "r", "id": 0, "size": 8, "bitwidth": 48}]
    doc.extra["counter_arrays"] = [{"name": "c", "id": 0, "size": 8, "is_direct": False}]
    doc.extra["meter_arrays"] = [
        {"name": "mt", "id": 0, "type": "bytes", "rate_count": 2, "size": 8, "is_direct": False}
    ]
    doc.extra["calculations"] = [
        {"name": "calc", "id": 0, "algo": "crc32", "input": [fld("ip", "src"), fld("eth", "type")]},
        {"name": "sum", "id": 1, "algo": "csum16", "input": [hdr("ip"), {"type": "payload", "value": None}]},
    ]
    doc.extra["checksums"] = [
        {
            "name": "k",
            "id": 0,
            "type": "generic",
            "target": ["ip", "sum"],
            "calculation": "sum",
            "if_cond": expr("valid", None, hdr("ip")),
        }
    ]
    doc.extra["field_lists"] = [{"id": 1, "name": "fl", "elements": [fld("m", "v")]}]
    doc.extra["learn_lists"] = [{"id": 1, "name": "ll", "elements": [fld("eth", "src"), fld("m", "v")]}]
    length = {"type": "expression", "value": expr("<<", fld("ip", "n"), num(3))}
    doc.state("ua", [extract("u.a")])
    doc.state(
        "mpls", [extract("s", "stack")], [{"type": "stack_field", "value": ["s", "bos"]}], [("0x00", "mpls")], "ua"
    )
    doc.state(
        "ip",
        [
            {"op": "extract_VL", "parameters": [extract("ip")["parameters"][0], length]},
            prim("verify", expr("<", fld("ip", "v"), num(9)), num(7)),
            prim("set", fld("m", "v"), {"type": "lookahead", "value": [0, 8]}),
        ],
    )
    doc.state("start", [extract("eth")], [fld("eth", "type")], [("0x0800", "ip"), ("0x8847", "0xffff", "mpls")])
    vset = {"type": "parse_vset", "value": "vs", "mask": None, "next_state": "ip"}
    doc.states[-1]["transitions"].insert(0, vset)
    doc.init_state = "start"
    calc = {"type": "calculation", "value": "calc"}
    register = {"type": "register_array", "value": "r"}
    fwd = doc.action(
        "fwd",
        [("port", 9), ("mac", 48)],
        assign(fld("standard_metadata", "egress_spec"), param(0)),
        assign(fld("eth", "dst"), param(1)),
        prim("modify_field_with_hash_based_offset", fld("m", "v"), num(0), calc, num(7)),
        prim("count", {"type": "counter_array", "value": "c"}, fld("m", "v")),
        prim("execute_meter", {"type": "meter_array", "value": "mt"}, fld("m", "v"), fld("m", "i")),
        prim("register_read", fld("eth", "src"), register, fld("m", "v")),
        prim("_jump_if_zero", fld("m", "v"), num(8)),
        prim("push", stack("s"), num(1)),
        prim("clone_ingress_pkt_to_egress", num(1), num(1)),
        prim("generate_digest", num(0), num(1)),
    )
    drop = doc.action("drop", [], prim("mark_to_drop", hdr("standard_metadata")), prim("exit"))
    doc.table(
        "t",
        [("lpm", "ip", "src"), ("exact", "eth", "$valid$")],
        [fwd, drop],
        default=(drop, []),
        with_counters=True,
    )
    doc.table("w", [("ternary", "m", "w"), ("range", "m", "v")], [drop], default=(drop, []), support_timeout=True)
    doc.pipelines["ingress"]["conditionals"].append(
        {
            "name": "cond",
            "id": 0,
            "expression": expr("and", expr("valid", None, hdr("ip")), expr(">", fld("m", "i"), num(-3))),
            "true_next": "t",
            "false_next": None,
        }
    )
    doc.pipelines["ingress"]["init_table"] = "cond"
    doc.run(assign(fld("m", "w"), expr("*", fld("m", "w"), num(3))), pipeline="egress")
    return doc


JUNK: tuple[Any, ...] = (
    *(None, True, -1, 0, 3, 1 << 40),
    *("", "x", "0x", "0xffffffff", "-0x5"),
    *([], [1], ["h", "x"], {}, {"type": "field"}),
)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    out = [path] if path else []
    if isinstance(value, dict):
        for k in value:
            out += leaves(value[k], (*path, k))
    elif isinstance(value, list):
        for i in range(len(value)):
            out += leaves(value[i], (*path, i))
    return out


def test_the_rich_document_itself() -> None:
    program = load_program(rich_doc().json())
    instance = program.instance()
    assert Runner(instance).run(b"\0" * 64).dropped is False
    instance.close()


def test_mutated_documents_are_loaded_or_refused_in_one_line(seed: int) -> None:
    rng = random.Random(seed)
    document = rich_doc().json()
    paths = leaves(document)
    refused = 0
    for _ in range(1200):
        mutant = copy.deepcopy(document)
        for _ in range(rng.choice((1, 1, 1, 2, 5))):
            path = rng.choice(paths)
            target = mutant
            try:
                for step in path[:-1]:
                    target = target[step]
                if rng.random() < 0.3:
                    del target[path[-1]]
                else:
                    target[path[-1]] = copy.deepcopy(rng.choice(JUNK))
            except (KeyError, IndexError, TypeError, AttributeError):
                continue  # an earlier mutation took the place away
        refused += refusal(mutant) != ""
    assert refused > 400


def refusal(document: dict[str, Any]) -> str:
    """Return the complaint about a document, which must be one line that names the place; empty if it loads."""
    try:
        load_program(document)
    except ProgramError as error:
        complaint = str(error)
    else:
        return ""
    assert "\n" not in complaint
    assert complaint.startswith("<memory>: ")
    return complaint


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "not a BMv2 JSON"),
        (b"\x7fELF\xff\xfe", "binary"),
        (b"[1, 2]", "the top level is not an object"),
        (b"{}", "needs 'header_types'"),
        (b'{"header_types": [], "parsers": [], "pipelines": []}', "no pipeline 'ingress'"),
        (b"[" * 100_000, "not a BMv2 JSON"),
        (b'{"__meta__": {"version": [3, 0]}, "header_types": [], "parsers": [], "pipelines": []}', "major version 3"),
        (b'{"header_types": 7, "parsers": [], "pipelines": []}', "header_types: expected an array, found an integer"),
    ],
)
def test_files_that_are_no_programs(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "prog.json"
    path.write_bytes(content)
    with pytest.raises(ProgramError) as caught:
        load_program(path)
    assert str(path) in str(caught.value)
    assert complaint in str(caught.value)


def test_missing_file_and_directory(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="cannot read"):
        load_program(tmp_path / "nix.json")
    with pytest.raises(ProgramError, match="cannot read"):
        load_program(tmp_path)


def _change(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    target: Any = document
    *steps, last = path.split("/")
    for step in steps:
        target = target[int(step) if step.isdigit() else step]
    target[int(last) if last.isdigit() else last] = value
    return document


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        ("headers/1/header_type", "nix", "headers[1].header_type: there is no header type 'nix'"),
        ("headers/1/id", 0, "the id 0 is used twice"),
        ("header_types/1/fields/0", ["dst", 47], "not a whole number of bytes"),
        ("header_types/1/fields/1/0", "dst", "declared twice"),
        ("parsers/0/init_state", "nix", "no parser state 'nix'"),
        ("parsers/0/parse_states/3/transitions/1/value", "0x08", "value has 1 bytes, the transition key has 2"),
        ("parsers/0/parse_states/0/parser_ops/0/op", "suck", "operation 'suck' is not supported"),
        ("pipelines/0/init_table", "nix", "no table, condition or action call 'nix'"),
        ("pipelines/0/tables/0/next_tables", {}, "no next node for action 'fwd'"),
        ("pipelines/0/tables/0/base_default_next", "cond", "goes round in a circle"),
        ("pipelines/0/tables/0/match_type", "exact", "with an lpm key must be of type"),
        ("pipelines/0/tables/0/action_ids", [17], "no action with id 17"),
        ("pipelines/0/tables/0/default_entry/action_data", ["0x1"], "takes 0 arguments, found 1"),
        ("pipelines/0/tables/1/key/0/target", ["m", "nix"], "has no field 'nix'"),
        ("pipelines/0/conditionals/0/expression/value/op", "nand", "'nand' is not an operator"),
        ("calculations/0/algo", "md5", "hash algorithm 'md5' is not supported"),
        ("checksums/0/target", ["m", "w"], "1 to 64 bits"),
        ("deparsers/0/order/0", "m", "cannot be deparsed"),
        ("field_lists/0/elements/0/value", ["m", "nix"], "has no field 'nix'"),
        ("meter_arrays/0/rate_count", 3, "two rates"),
        ("register_arrays/0/size", 1 << 40, "out of range"),
    ],
)
def test_dangling_references_name_their_place(path: str, value: Any, complaint: str) -> None:
    with pytest.raises(ProgramError) as caught:
        load_program(_change(rich_doc().json(), path, value))
    assert complaint in str(caught.value)


def test_names_cannot_break_out_of_the_generated_code() -> None:
    doc = rich_doc().json()
    evil = 'x*/ #error " \\ \n??/'
    doc["pipelines"][0]["tables"][0]["name"] = evil
    doc["pipelines"][0]["conditionals"][0]["true_next"] = evil
    doc["header_types"][1]["fields"][0][0] = evil
    doc["actions"][0]["name"] = evil
    doc["pipelines"][0]["tables"][0]["next_tables"] = {evil: None, "drop": None}
    text = json.dumps(doc).replace('"eth", "dst"', json.dumps(["eth", evil])[1:-1])
    program = load_program(json.loads(text), name=evil)
    program.instance().close()


# --- building ---


def test_cache_is_used_and_keyed_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRCLAB_CACHE", str(tmp_path / "cache"))
    program = load_program(rich_doc().json())
    first = program.build()
    stamp = first.stat().st_ino
    assert program.build() == first
    assert first.stat().st_ino == stamp
    assert first.parent == cache_dir()
    changed = rich_doc()
    changed.run(assign(fld("m", "v"), num(1)), pipeline="egress")
    assert load_program(changed.json()).build() != first
    assert not list(first.parent.glob("build-*"))


def test_damaged_object_is_built_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRCLAB_CACHE", str(tmp_path))
    program = load_program(rich_doc().json(), name="damaged")
    path = program.build()
    path.write_bytes(b"no object")
    program.instance().close()
    assert path.stat().st_size > 1000


def test_missing_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRCLAB_CACHE", str(tmp_path))
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(BuildError, match="no-such-compiler: no C compiler found; install gcc"):
        load_program(rich_doc().json()).build()


def test_failing_compiler_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRCLAB_CACHE", str(tmp_path))
    with pytest.raises(BuildError, match="the C compiler failed"):
        build("broken", generated={"a.c": "int f( {"})
    assert list(tmp_path.iterdir()) == []


def test_cache_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MRCLAB_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(BuildError, match="set MRCLAB_CACHE"):
        cache_dir()


# --- fuzzing ---


@pytest.mark.slow
def test_fuzz_under_sanitizers(seed: int) -> None:
    assert fuzz.fuzz(load_program(rich_doc().json(), name="rich"), 6_000, seed) is None


def test_fuzz_command_reports_unusable_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz.main([str(tmp_path / "nix.json")]) == 2
    assert "cannot read" in capsys.readouterr().err
