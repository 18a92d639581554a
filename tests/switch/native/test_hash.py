"""The hash of match keys spreads what tables hold: prefixes, whose lowest bits are 0, as well as dense numbers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from p4lite.switch.native.build import build

ENTRIES = 1000
MEAN_PROBES = 4.0
"""Slots looked at until an empty one, on average over all homes: 2.5 at half load with a perfect hash."""

MEASURE = """
#include "tables.h"
#include <stdio.h>
#include <stdlib.h>

/* Fills a table of twice the slots with ENTRIES keys; prints the mean number of slots that a miss looks at. */
int main(int argc, char **argv)
{
    enum { SLOTS = 2048 };
    static unsigned char taken[SLOTS];
    uint64_t first = strtoull(argv[1], NULL, 0), step = strtoull(argv[2], NULL, 0);
    unsigned words = (unsigned)(argc - 3), probes = 0;
    for (uint64_t k = 0; k < ENTRIES; k++) {
        uint64_t key[4];
        for (unsigned i = 0; i < words; i++)
            key[i] = atoi(argv[3 + i]) ? first + k * step : first;
        uint32_t slot = p4_key_hash(key, words, 1) & (SLOTS - 1);
        while (taken[slot])
            slot = (slot + 1) & (SLOTS - 1);
        taken[slot] = 1;
    }
    for (uint32_t i = 0; i < SLOTS; i++)
        for (uint32_t slot = i; ++probes && taken[slot]; slot = (slot + 1) & (SLOTS - 1))
            ;
    printf("%f\\n", (double)probes / SLOTS);
    return 0;
}
"""


@pytest.fixture(scope="module")
def measure() -> Path:
    text = MEASURE.replace("ENTRIES", str(ENTRIES))
    return build("hash-spread", generated={"spread.c": text}, executable=True)


@pytest.mark.parametrize(
    ("first", "step", "words"),
    [
        pytest.param(0xC0000000 << 32, 1 << 40, [1], id="IPv4 prefixes of 24 bits"),
        pytest.param(0x0A000000 << 32, 1 << 48, [1], id="IPv4 prefixes of 16 bits"),
        pytest.param(1, 1, [1], id="dense numbers at the low end"),
        pytest.param(0, 1 << 54, [1], id="numbers of 10 bits at the high end"),
        pytest.param(0xFD00 << 48, 1 << 16, [1, 0], id="IPv6 prefixes of 48 bits"),
        pytest.param(0xFD00 << 48, 1, [0, 1], id="IPv6 addresses of one subnet"),
    ],
)
def test_keys_spread_over_the_slots(measure: Path, first: int, step: int, words: list[int]) -> None:
    """A miss looks at few slots, whichever bits of the keys differ."""
    command = [str(measure), str(first), str(step), *map(str, words)]
    mean = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert mean < MEAN_PROBES
