"""P4Info of a typed program: what P4Runtime controllers know of it.

    generate(program) -> p4.config.v1.p4info_pb2.P4Info

The program is seen as the P4Runtime specification (§6) and p4c's compiler see it: sub-controls and sub-parsers are part
of the block that applies them, their objects named by the path of instances; tables that are never applied and
actions that cannot be invoked are left out; extern objects stay even when unused. Names are those of the BMv2 JSON.

* `blocks`: the blocks of the package, flattened: which objects there are, in order, and their names
* `ids`: identifiers and aliases, of objects and of fields
* `notes`: annotations and documentation
* `typeinfo`: `P4DataTypeSpec` and `P4TypeInfo`
* `tables`, `generator`: the message
"""

from __future__ import annotations

from p4lite.compiler.p4info.generator import generate
from p4lite.compiler.p4info.ids import PREFIX, hash24

__all__ = ["PREFIX", "generate", "hash24"]
