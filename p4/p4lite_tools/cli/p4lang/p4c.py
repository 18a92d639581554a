"""`p4c` and `p4c-bm2-ss`: p4c's command lines for BMv2's v1model, served by p4lite's compiler.

Options that change what p4c prints about itself are accepted and have no effect. Options whose effect would be missed
are refused by name.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from p4lite.cli.options import add_compiler
from p4lite.compiler.architecture import ARCHITECTURES
from p4lite.compiler.diagnostics import CompileError
from p4lite.files import write_whole

EXIT_OK, EXIT_FAILED = 0, 1

#: Options about p4c's own passes and logs, each with the number of words that follow it.
WITHOUT_EFFECT = {
    "--dump": 1, "--top4": 1, "-T": 1, "-v": 0, "-g": 0, "-c": 0, "--debug": 0, "--compile": 0, "--ndebug": 0,
    "--excludeFrontendPasses": 1, "--excludeMidendPasses": 1, "--maxErrorCount": 1, "--emit-externs": 0,
    "--parser-inline-opt": 0, "--loopsUnroll": 0, "--doNotEmitIncludes": 0, "-Xassembler": 1, "-Xlinker": 1,
    "-O0": 0, "-O1": 0, "-O2": 0, "-O3": 0, "-W": 1,
}  # fmt: skip

#: Options that this compiler cannot serve, and what to use for their purpose.
REFUSED = {
    "--toJSON": "p4lite has no JSON of its syntax tree",
    "--toJson": "p4lite has no JSON of its syntax tree",
    "--fromJSON": "p4lite reads P4 source only",
    "--pp": "p4lite does not print programs back; 'p4lite format' formats the source",
    "--p4runtime-entries-file": "p4lite writes no file of constant entries; controllers read them from the switch",
    "--p4runtime-entries-files": "p4lite writes no file of constant entries; controllers read them from the switch",
    "--disable-annotations": "p4lite heeds every annotation of v1model",
    "--listFrontendPasses": "p4lite has other passes",
    "--nocpp": "p4lite preprocesses every program; a preprocessed one does not change by this",
    "-E": "p4lite does not print the preprocessed program; 'cpp' does",
    "-M": "p4lite writes no rules for make",
}

_P4_14 = {"14", "1.0", "1.1", "p4-14", "p4_14"}
_P4_16 = {"16", "p4-16", "p4_16"}
_ARCHITECTURES = [each.name for each in ARCHITECTURES]
_TARGETS = {"bmv2", "bmv2-ss-p4org", "p4c-bm2-ss"}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: error: {message}", file=sys.stderr)
        raise SystemExit(EXIT_FAILED)


def _parser(prog: str, driver: bool) -> argparse.ArgumentParser:
    p = _Parser(
        prog=prog,
        allow_abbrev=False,
        description="p4lite under the name of a p4c command: compile a P4_16 program for v1model to BMv2 JSON. "
        "Options about p4c's own passes are accepted without effect.",
    )
    p.add_argument("program", metavar="PROG.p4", nargs="?")
    output = "folder for PROG.json (default: here)" if driver else "write the BMv2 JSON here"
    p.add_argument("-o", "--output", metavar="DIR" if driver else "FILE", help=output)
    p.add_argument("--p4v", metavar="16", help="version of the language")
    p.add_argument("-x", "--std", metavar="p4-16", help="version of the language")
    p.add_argument("-b", "--target", metavar="bmv2", help="only bmv2")
    p.add_argument("-a", "--arch", metavar="ARCH", help="v1model or psa; main says which it is")
    add_compiler(p)
    p.add_argument("-U", dest="undefines", metavar="NAME", action="append", default=[], help="undo -D NAME")
    p.add_argument("--p4runtime-files", "--p4runtime-file", metavar="FILES", help="write P4Info: .txtpb, .json or .bin")
    p.add_argument("--p4runtime-format", choices=["binary", "json", "text"], help="of a file with another ending")
    p.add_argument("--Werror", nargs="?", const="", action="append", metavar="DIAG", help="a warning fails the run")
    for name in ("--Wdisable", "--Wwarn", "--Winfo"):
        p.add_argument(name, nargs="?", const="", action="append", metavar="DIAG", help="--Wdisable hides warnings")
    p.add_argument("-V", "--version", action="store_true", help="print the version")
    return p


def p4c(argv: Sequence[str]) -> int:
    """Run `p4c`, p4c's driver, whose -o names a folder."""
    return _run("p4c", argv, driver=True)


def p4c_bm2_ss(argv: Sequence[str]) -> int:
    """Run `p4c-bm2-ss`, p4c's compiler for simple_switch."""
    return _run("p4c-bm2-ss", argv, driver=False)


def _run(prog: str, argv: Sequence[str], driver: bool) -> int:
    try:
        args = _parser(prog, driver).parse_args(_known(prog, argv))
        if args.version:
            print(f"{prog}: p4lite {_version()}, in the place of p4c")
            return EXIT_OK
        _check(prog, args)
        return _compile(prog, args, driver)
    except SystemExit as end:
        return int(end.code or 0)


def _known(prog: str, argv: Sequence[str]) -> list[str]:
    """Return the words without options that have no effect. Raises SystemExit for one that is refused."""
    out: list[str] = []
    words = iter(argv)
    for word in words:
        name, _, value = word.partition("=")
        if name in REFUSED:
            raise _refuse(prog, f"{name} is not supported: {REFUSED[name]}")
        # As in p4c, a diagnostic is attached by '='; the word after a bare option is another argument.
        if name in ("--Werror", "--Wdisable", "--Wwarn", "--Winfo"):
            out.append(f"{name}={value}")
        elif name in WITHOUT_EFFECT:
            for _ in range(0 if value else WITHOUT_EFFECT[name]):
                next(words, None)
        elif not re.match(r"-T\S", word):
            out.append(word)
    return out


def _check(prog: str, args: argparse.Namespace) -> None:
    """Refuse what is not P4_16 for BMv2."""
    for given in (args.p4v, args.std):
        if given in _P4_14:
            raise _refuse(prog, f"P4_14 is not supported ({given}); translate the program to P4_16")
        if given is not None and given not in _P4_16:
            raise _refuse(prog, f"'{given}' is not a version of P4: expected 16 or p4-16")
    if args.target is not None and args.target not in _TARGETS:
        raise _refuse(prog, f"target '{args.target}' is not supported: expected bmv2")
    if args.arch is not None and args.arch not in _ARCHITECTURES:
        raise _refuse(prog, f"architecture '{args.arch}' is not supported: expected {' or '.join(_ARCHITECTURES)}")
    if args.program is None:
        raise _refuse(prog, "no program given: expected the name of a .p4 file")


def _compile(prog: str, args: argparse.Namespace, driver: bool) -> int:
    from p4lite import compiler
    from p4lite.compiler import backend

    gone = set(args.undefines)
    defines = [item for item in args.defines if item.partition("=")[0] not in gone]
    show_warnings = not args.Wdisable
    try:
        compiled = compiler.compile_program(args.program, args.include_dirs, defines)
        warnings = [d for d in compiled.warnings if d.severity == "warning"]
        _show(warnings if show_warnings else [])
        if warnings and args.Werror:
            print(f"{prog}: error: {len(warnings)} warnings, and --Werror is given", file=sys.stderr)
            return EXIT_FAILED
        info = [(path, _p4info(prog, compiled, path, args.p4runtime_format)) for path in _files(args)]
    except CompileError as error:
        _show(error.diagnostics)
        return EXIT_FAILED
    try:
        for path, data in info:
            write_whole(path, data)
        where = _json_path(args, driver)
        if where is not None:
            where.parent.mkdir(parents=driver, exist_ok=True)
            write_whole(where, backend.to_text(compiled.bmv2))
    except OSError as error:
        print(f"{prog}: error: {error.filename}: cannot write: {error.strerror}", file=sys.stderr)
        return EXIT_FAILED
    return EXIT_OK


def _json_path(args: argparse.Namespace, driver: bool) -> Path | None:
    if not driver:
        return None if args.output is None else Path(args.output)
    return Path(args.output or ".") / f"{Path(args.program).stem}.json"


def _files(args: argparse.Namespace) -> list[str]:
    return [name for name in (args.p4runtime_files or "").split(",") if name]


def _p4info(prog: str, compiled: Any, path: str, given: str | None) -> str | bytes:
    """Return the P4Info in the form that the file's ending, else --p4runtime-format, names."""
    endings = {".txt": "text", ".txtpb": "text", ".json": "json", ".bin": "binary"}
    form = endings.get(Path(path).suffix, given)
    if form is None:
        raise _refuse(prog, f"--p4runtime-files {path}: expected a name that ends in .txtpb, .txt, .json or .bin")
    if form == "json":
        from google.protobuf import json_format

        return str(json_format.MessageToJson(compiled.p4info_message, preserving_proto_field_name=False))
    return compiled.p4info_message.SerializeToString() if form == "binary" else str(compiled.p4info)


def _show(diagnostics: Sequence[object]) -> None:
    for d in diagnostics:
        print(d, file=sys.stderr)


def _refuse(prog: str, message: str) -> SystemExit:
    print(f"{prog}: error: {message}", file=sys.stderr)
    return SystemExit(EXIT_FAILED)


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("p4lite")
    except metadata.PackageNotFoundError:
        return "(not installed)"


_FILE = "p4/tmp/p4config.proto"
_FIELD = descriptor_pb2.FieldDescriptorProto


def _message() -> Any:
    """Return the class of the message, whose fields are those that `p4rt.pipeline.device_config` reads."""
    file = descriptor_pb2.FileDescriptorProto(name=_FILE, package="p4.tmp", syntax="proto3")
    config = file.message_type.add(name="P4DeviceConfig")
    extras = config.nested_type.add(name="Extras")
    pair = extras.nested_type.add(name="KvEntry")
    pair.options.map_entry = True
    _add(pair, "key", 1, _FIELD.TYPE_STRING)
    _add(pair, "value", 2, _FIELD.TYPE_STRING)
    _add(extras, "kv", 1, _FIELD.TYPE_MESSAGE, ".p4.tmp.P4DeviceConfig.Extras.KvEntry", repeated=True)
    _add(config, "reassign", 1, _FIELD.TYPE_BOOL)
    _add(config, "extras", 2, _FIELD.TYPE_MESSAGE, ".p4.tmp.P4DeviceConfig.Extras")
    _add(config, "device_data", 3, _FIELD.TYPE_BYTES)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("p4.tmp.P4DeviceConfig"))


def _add(to: Any, name: str, number: int, kind: Any, type_name: str | None = None, *, repeated: bool = False) -> None:
    label = _FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL
    to.field.add(name=name, number=number, type=kind, type_name=type_name, label=label)


P4DeviceConfig: Any = _message()
