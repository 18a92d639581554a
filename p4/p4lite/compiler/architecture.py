"""The architectures that programs are compiled for: their package, blocks, externs and table properties, as values.

What differs in how code is made is in `midend.blocks` and the modules beside it, one for each architecture.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath

from p4lite.compiler import ast
from p4lite.compiler.diagnostics import Unsupported

Path = tuple[str, ...]
"""Where a block stands in the package: the arguments from `main` to it."""


@dataclass(frozen=True, slots=True)
class ControlledExtern:
    """An extern that the control plane sees: what it is, and the names of its constructor's parameters.

    `kind` is register, counter, direct_counter, meter, direct_meter, action_profile, action_selector or digest.
    """

    kind: str
    size: str = "size"
    algorithm: str = "algorithm"


@dataclass(frozen=True)
class Architecture:
    """An architecture. `blocks`: the programmable blocks by the names that pictures have, in the order of P4Info.

    `properties`: this architecture's names of the table properties implementation, counters, meters and timeout.
    `hidden`: extern types beside `externs` and packet_in and packet_out that are part of it. `hashes`: BMv2's names of
    the members of `hash_enum`, where they differ.
    """

    name: str
    package: str
    file: str
    blocks: Mapping[str, Path]
    externs: Mapping[str, ControlledExtern]
    hidden: frozenset[str]
    properties: Mapping[str, str]
    hash_enum: str
    hashes: Mapping[str, str] = field(default_factory=dict)
    pipelines: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """For each way through the program: the block of its parser, then of the controls that a packet meets next."""

    def kind(self, extern: str) -> str | None:
        """Return what kind of object of the control plane an extern type is, None if of none."""
        found = self.externs.get(extern)
        return None if found is None else found.kind

    def owns(self, extern: str) -> bool:
        """Return whether an extern type is one of the architecture's."""
        return extern in self.externs or extern in self.hidden or extern in ("packet_in", "packet_out")

    def property(self, table: ast.TableDecl, what: str) -> ast.TableProperty | None:
        """Return a table's property: implementation, counters, meters or timeout."""
        return table.property(self.properties[what])

    def declares(self, decl: ast.Declaration) -> bool:
        """Return whether a declaration is in the architecture's own file."""
        return PurePath(decl.pos.file).name == self.file

    def algorithm(self, member: str) -> str | None:
        """Return BMv2's name of a hash algorithm, None if it has none."""
        return self.hashes.get(member) if self.hashes else member

    def instances(self, main: ast.Instance) -> Iterator[tuple[str, ast.Instance]]:
        """Yield the blocks of a program with their names, those that are there."""
        for name, path in self.blocks.items():
            found = block_at(main, path)
            if found is not None:
                yield name, found


def block_at(main: ast.Instance, path: Path) -> ast.Instance | None:
    """Return the instance at a place in the package."""
    found: ast.Instance = main
    for name in path:
        value = found.args.get(name)
        if not isinstance(value, ast.Instance):
            return None
        found = value
    return found


#: The port of v1model to which packets are sent that are dropped.
DROP_PORT = 511
V1MODEL = Architecture(
    name="v1model",
    package="V1Switch",
    file="v1model.p4",
    blocks={
        "parser": ("p",),
        "verify": ("vr",),
        "ingress": ("ig",),
        "egress": ("eg",),
        "compute": ("ck",),
        "deparser": ("dep",),
    },
    externs={
        name: ControlledExtern(name)
        for name in (
            "register",
            "counter",
            "direct_counter",
            "meter",
            "direct_meter",
            "action_profile",
            "action_selector",
        )
    },
    hidden=frozenset({"Checksum16"}),
    properties={
        "implementation": "implementation",
        "counters": "counters",
        "meters": "meters",
        "timeout": "support_timeout",
    },
    hash_enum="HashAlgorithm",
    pipelines=(("parser", ("ingress", "egress")),),
)

PSA = Architecture(
    name="psa",
    package="PSA_Switch",
    file="psa.p4",
    blocks={
        "ingress_parser": ("ingress", "ip"),
        "ingress": ("ingress", "ig"),
        "ingress_deparser": ("ingress", "id"),
        "egress_parser": ("egress", "ep"),
        "egress": ("egress", "eg"),
        "egress_deparser": ("egress", "ed"),
    },
    externs={
        "Register": ControlledExtern("register"),
        "Counter": ControlledExtern("counter", size="n_counters"),
        "DirectCounter": ControlledExtern("direct_counter"),
        "Meter": ControlledExtern("meter", size="n_meters"),
        "DirectMeter": ControlledExtern("direct_meter"),
        "ActionProfile": ControlledExtern("action_profile"),
        "ActionSelector": ControlledExtern("action_selector", algorithm="algo"),
        "Digest": ControlledExtern("digest"),
    },
    hidden=frozenset(
        {"Hash", "Checksum", "InternetChecksum", "Random", "PacketReplicationEngine", "BufferingQueueingEngine"}
    ),
    properties={
        "implementation": "psa_implementation",
        "counters": "psa_direct_counter",
        "meters": "psa_direct_meter",
        "timeout": "psa_idle_timeout",
    },
    hash_enum="PSA_HashAlgorithm_t",
    hashes={
        "IDENTITY": "identity",
        "CRC32": "crc32",
        "CRC32_CUSTOM": "crc32_custom",
        "CRC16": "crc16",
        "CRC16_CUSTOM": "crc16_custom",
        "ONES_COMPLEMENT16": "csum16",
        "TARGET_DEFAULT": "crc16",
    },
    pipelines=(("ingress_parser", ("ingress",)), ("egress_parser", ("egress",))),
)

ARCHITECTURES = (V1MODEL, PSA)
BLOCKS = tuple(dict.fromkeys(name for each in ARCHITECTURES for name in each.blocks))
"""The names of blocks in all architectures."""


def find_architecture(main: ast.Instance) -> Architecture | None:
    """Return the architecture of a program, None if it is another one."""
    return next((each for each in ARCHITECTURES if each.package == main.decl.name), None)


def architecture(main: ast.Instance) -> Architecture:
    """Return the architecture of a program. Raises Unsupported for a package that none has."""
    found = find_architecture(main)
    if found is not None:
        return found
    packages = " or ".join(f"a {each.package} of {each.name}" for each in ARCHITECTURES)
    raise Unsupported(main.pos, f"not supported for BMv2: package '{main.decl.name}': main must be {packages}")
