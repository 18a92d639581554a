"""Initial entries and default actions of tables, as C data."""

from __future__ import annotations

from p4lite.switch.bmv2.reader import JsonNode
from p4lite.switch.codegen.cexpr import literal
from p4lite.switch.program.facts import Facts, KeyFacts, TableFacts
from p4lite.switch.program.layout import MASK64, KeyWords, pack_args
from p4lite.switch.program.load import entry_action


def words_of(values: list[int]) -> str:
    return "(const uint64_t[]){" + ", ".join(literal(v, 64) for v in values or [0]) + "}"


def _hex_value(node: JsonNode, key: KeyFacts) -> int:
    value = node.hex()
    # p4c writes the constants of an int<W> with a sign
    if -(1 << key.width >> 1) <= value < 0:
        return value + (1 << key.width)
    if not 0 <= value < (1 << key.width):
        node.fail(f"{node.value} does not fit into the {key.width} bits of '{key.name}'")
    return value


def _match(words: KeyWords, key: KeyFacts, node: JsonNode, kind: str) -> None:
    full = (1 << key.width) - 1
    match = node["match_type"].str()
    same = {key.match, "ternary" if key.match == "optional" else key.match}
    if match not in same and match != "optional":
        node["match_type"].fail(f"the key '{key.name}' is of type '{key.match}', not '{match}'")
    if match == "valid":
        words.put(key.place, int(node["key"].bool()), 1, 1)
    elif match == "exact" or (match == "optional" and node.get("mask") is None):
        value = _hex_value(node["key"], key)
        words.put(key.place, value, full, value)
    elif match == "lpm":
        value, length = _hex_value(node["key"], key), node["prefix_length"].int(0, key.width)
        mask = full ^ (full >> length)
        # p4c leaves bits behind the prefix as the programmer wrote them; BMv2 ignores them
        words.put(key.place, value & mask, mask, (value & mask) | (full ^ mask))
        if kind == "lpm":
            words.order = key.width - length
    elif match in ("ternary", "optional"):
        value, mask = _hex_value(node["key"], key), _hex_value(node["mask"], key)
        words.put(key.place, value & mask, mask, value & mask)
    else:
        low, high = _hex_value(node["start"], key), _hex_value(node["end"], key)
        if low > high:
            node.fail(f"the range {low} to {high} is empty")
        words.put(key.place, low, full, high)


def load_initial(facts: Facts) -> list[str]:
    """Return the C function `load_initial`, with the entries as data: C compilers take long over long functions."""
    data: list[str] = []
    defaults: list[str] = []
    calls: list[str] = []
    for table in facts.tables.values():
        default = table.default_entry
        if default is not None:
            action = table.actions[default.name]
            args = pack_args(action.widths, default.args, table.arg_words)
            defaults.append(_row([table.index, action.index, *args]))
        rows = _rows(facts, table)
        if rows:
            data += [f"static const uint64_t entries_{table.index}[] = {{", *rows, "};"]
            mask = words_of(_full_mask(table)) if table.kind == "exact" else "NULL"
            calls.append(f"p4_initial_entries(in, {table.index}, {mask}, entries_{table.index}, {len(rows)})")
    if defaults:
        data += ["static const uint64_t defaults[] = {", *defaults, "};"]
        calls.insert(0, f"p4_initial_defaults(in, defaults, {len(defaults)})")
    out = [*data, "static int load_initial(struct p4_state *in)", "{", "    (void)in;"]
    for call in calls:
        out += [f"    if ({call} < 0)", "        return -1;"]
    return [*out, "    return 0;", "}"]


def _full_mask(table: TableFacts) -> list[int]:
    """Return the mask of every entry of an exact table."""
    words = [0] * table.key_words
    for key in table.key:
        key.place.put(words, (1 << key.width) - 1)
    return words


def _rows(facts: Facts, table: TableFacts) -> list[str]:
    """Return the entries of a table, a line of words each, as `p4_initial_entries` reads them."""
    rows: list[str] = []
    seen: set[tuple[object, ...]] = set()
    for node in table.node.items("entries"):
        key, args, number = _entry(facts, node, table)
        identity = (tuple(key.value), tuple(key.mask), tuple(key.high), key.order)
        if identity in seen:
            node.fail(f"the table '{table.name}' has this entry twice")
        seen.add(identity)
        row = [number, *args, *key.value]
        if table.kind != "exact":
            row += [key.order & MASK64, *key.mask]
        if table.kind == "range":
            row += key.high
        rows.append(_row(row))
    return rows


def _row(words: list[int]) -> str:
    return "    " + "".join(f"{word:#x}," if word > 9 else f"{word}," for word in words)


def _entry(facts: Facts, node: JsonNode, table: TableFacts) -> tuple[KeyWords, list[int], int]:
    parts = list(node["match_key"].items())
    if len(parts) != len(table.key):
        node["match_key"].fail(f"the table has {len(table.key)} keys, the entry {len(parts)}")
    words = KeyWords(table.key_words)
    for key, part in zip(table.key, parts, strict=True):
        _match(words, key, part, table.kind)
    if table.needs_priority:
        priority = node.get("priority")
        words.order = priority.int() if priority else 0
    if table.kind != "range":
        words.high = [0] * table.key_words
    action, call = entry_action(node["action_entry"], facts.actions, table.name, table.actions)
    return words, pack_args(action.widths, call.args, table.arg_words), action.index
