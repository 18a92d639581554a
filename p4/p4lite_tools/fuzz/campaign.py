"""Fuzzing of compiled programs under the address and undefined-behaviour sanitizers.

    python -m p4lite_tools.fuzz PROG.json... [--frames N] [--seed S]

Each program becomes an executable with tables of random entries and packets made from its parser; see
`core/program/fuzz_main.c`. Exit code 0: no finding; 1: a finding; 2: a program that cannot be loaded or built.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from p4lite.switch.codegen.pipelines import words_of
from p4lite.switch.errors import BuildError, ProgramError
from p4lite.switch.native.build import PROGRAM_DIR, build
from p4lite.switch.program.facts import ActionFacts, Facts, Profile, TableFacts
from p4lite.switch.program.layout import KeyWords, pack_args
from p4lite.switch.runtime.loader import RUNTIME, LoadedProgram, load_program
from p4lite_tools.fuzz.frames import FrameMaker

TEMPLATES = 64
ENTRIES = 24
MEMBERS = 8  # of every action profile, and groups of every selector


@dataclass(frozen=True)
class Finding:
    program: str
    output: str


def _bytes(data: bytes) -> str:
    return "(const uint8_t[]){" + (", ".join(map(str, data)) or "0") + "}"


def templates_c(program: Facts, rng: random.Random) -> list[str]:
    """Return C of `fuzz_template`: packets made from the parser's states."""
    maker = FrameMaker(program, rng)
    rows = [maker.make() for _ in range(TEMPLATES)]
    out = ["const struct fuzz_template fuzz_template[] = {"]
    out += [f"    {{{_bytes(row)}, {len(row)}}}," for row in rows]
    return [*out, "};", f"const uint32_t fuzz_templates = {len(rows)};"]


def _random_value(width: int, rng: random.Random) -> int:
    """Return a random value, mostly a small or boundary one, because such values match more often."""
    kind = rng.randrange(4)
    if kind == 0:
        return rng.getrandbits(width)
    if kind == 1:
        return (1 << width) - 1
    return rng.randrange(min(1 << width, 16))


def random_key(table: TableFacts, rng: random.Random) -> KeyWords:
    """Return a valid match key of a table."""
    words = KeyWords(table.key_words)
    for key in table.key:
        full = (1 << key.width) - 1
        value = _random_value(key.width, rng)
        if key.match in ("exact", "valid"):
            words.put(key.place, value, full, value)
        elif key.match == "lpm":
            length = rng.randint(0, key.width)
            mask = full ^ (full >> length)
            words.put(key.place, value & mask, mask, value | (full ^ mask))
            if table.kind == "lpm":
                words.order = key.width - length
        elif key.match == "range":
            low, high = sorted((value, _random_value(key.width, rng)))
            words.put(key.place, low, full, high)
        else:
            mask = rng.choice((0, full, rng.getrandbits(key.width), full ^ (full >> rng.randint(0, key.width))))
            words.put(key.place, value & mask, mask, value & mask)
    if table.needs_priority:
        words.order = rng.randrange(8)
    if table.kind != "range":
        words.high = [0] * table.key_words
    return words


def random_args(action: ActionFacts, rng: random.Random) -> list[int]:
    return [_random_value(width, rng) if width else 0 for width in action.widths]


def loader_c(program: Facts, rng: random.Random) -> list[str]:
    """Return C of `fuzz_load`: random entries, members, groups and value sets."""
    out = [
        "int p4c_member_set(struct p4_instance *, uint32_t, uint32_t, int32_t, const uint64_t *);",
        "int p4c_group_set(struct p4_instance *, uint32_t, uint32_t, uint32_t, const uint32_t *);",
        "int p4c_vset_set(struct p4_instance *, uint32_t, uint32_t, const uint8_t *);",
        "void fuzz_load(struct p4_state *in, uint32_t round)",
        "{",
        "    (void)in;",
        "    (void)round;",
        "    uint32_t handle;",
        "    (void)handle;",
    ]
    for profile in program.action_profiles.values():
        actions = list(profile.actions.values())
        for slot in range(MEMBERS if actions else 0):
            action = rng.choice(actions)
            args = _args(action, profile.arg_words, rng)
            out.append(f"    p4c_member_set(&in->head, {profile.index}, {slot}, {action.index}, {args});")
        for slot in range(MEMBERS if actions and profile.selector else 0):
            chosen = [rng.randrange(MEMBERS) for _ in range(rng.randint(0, 4))]
            array = "(const uint32_t[]){" + ", ".join(map(str, [*chosen, 0])) + "}"
            out.append(f"    p4c_group_set(&in->head, {profile.index}, {slot}, {len(chosen)}, {array});")
    for values in program.value_sets.values():
        count = rng.randint(0, 8)
        data = _bytes(rng.randbytes(count * values.bytes))
        out.append(f"    p4c_vset_set(&in->head, {values.index}, {count}, {data});")
    for table in program.tables.values():
        if table.key and table.actions and not table.const_entries:
            used = None if table.action_profile is None else program.action_profiles[table.action_profile]
            out += _entries(table, used, rng)
    return [*out, "}"]


def _args(action: ActionFacts, words: int, rng: random.Random) -> str:
    return words_of(pack_args(action.widths, random_args(action, rng), words))


def _entries(table: TableFacts, profile: Profile | None, rng: random.Random) -> list[str]:
    out = []
    actions = list(table.actions.values())
    for i in range(min(ENTRIES, table.max_size)):
        key = random_key(table, rng)
        action = rng.choice(actions)
        kind, number, args = "P4_REF_ACTION", action.index, _args(action, table.arg_words, rng)
        if profile is not None:
            group = profile.selector and rng.random() < 0.6
            kind, number = ("P4_REF_GROUP" if group else "P4_REF_MEMBER"), rng.randrange(MEMBERS)
        out += [
            f"    if ((round + {i}) % 3 != 1) {{ const struct p4_key k = {{{words_of(key.value)},",
            f"        {words_of(key.mask)}, {words_of(key.high)}, {key.order}}};",
            f"      p4_table_insert(&in->tables[{table.index}], &k, (struct p4_act){{{kind}, {number}}}, {args},",
            "        in->head.now_ns, &handle); }",
        ]
    return [*out, f"    if (round) p4_table_delete(&in->tables[{table.index}], round % {ENTRIES});"]


def build_fuzzer(program: LoadedProgram, *, seed: int = 1, sanitize: bool = True) -> Path:
    """Return the fuzz executable of a program. Raises BuildError."""
    rng = random.Random(seed)
    text = "\n".join(['#include "fuzz.h"', *templates_c(program, rng), *loader_c(program, rng)]) + "\n"
    sources = [PROGRAM_DIR / file for file in (*RUNTIME, "fuzz_main.c")]
    name = "fuzz-" + re.sub(r"[^A-Za-z0-9_.-]", "_", program.name)[:50]
    generated = {"program.c": program.code.text, "fuzz_tables.c": text}
    return build(name, sources, generated=generated, sanitize=sanitize, executable=True)


def fuzz(program: LoadedProgram, frames: int, seed: int) -> Finding | None:
    """Run `frames` packets through a program; None if nothing was found."""
    executable = build_fuzzer(program, seed=seed)
    options = {"ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0", "UBSAN_OPTIONS": "print_stacktrace=1"}
    done = subprocess.run(
        [str(executable), str(frames), str(seed)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **options},
    )
    if done.returncode == 0:
        return None
    return Finding(program.name, (done.stderr or done.stdout)[-4000:])


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m p4lite_tools.fuzz", description="Fuzz compiled P4 programs.")
    parser.add_argument("programs", nargs="+", metavar="PROG.json")
    parser.add_argument("--frames", type=int, default=100_000, help="packets per program")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    findings = total = 0
    for path in args.programs:
        try:
            finding = fuzz(load_program(path), args.frames, args.seed)
        except (ProgramError, BuildError) as error:
            print(error, file=sys.stderr)
            return 2
        total += args.frames
        if finding is not None:
            findings += 1
            print(f"{path}: FINDING\n{finding.output}")
    print(f"{len(args.programs)} programs, {total} frames, {findings} findings")
    return 1 if findings else 0
