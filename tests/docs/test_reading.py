"""support.docs finds blocks, commands and printed output in pages."""

from __future__ import annotations

import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import docs

PAGE = """# A page

Type `mrclab topo plan
--radix 8`, or look at `mrclab` and `p4/p4lite`.

    make demo          # everything
    mrclab restore && mrclab down
    MRCLAB_PURE=1 mrclab run x \\
        --set a='b c' > out &

<!-- not run: it waits
for ever -->
```sh
mrclab sh
```

* an item

    with text, not a block, and `mrclab list`

```console
$ mrclab topo show tiny   # tables
planes 2
...
$ p4lite compile x.p4 -o x.json
```

    name: a
    lab: tiny

<!-- file: it.py -->
~~~python
print(1)
~~~

    {
      "a": 1 }

A picture:

    link → port
"""


@pytest.fixture
def page(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


def test_blocks_of_a_page_have_language_line_and_marks(page: pathlib.Path) -> None:
    found = [(block.language, block.line, block.reason) for block in docs.blocks(page)]
    lines = PAGE.splitlines()
    assert found == [
        ("sh", 6, None),
        ("sh", 14, "it waits for ever"),
        ("console", 22, None),
        ("yaml", 28, None),
        ("python", 33, None),
        ("json", 36, None),
        ("text", 41, None),
    ]
    assert [block.file for block in docs.blocks(page)] == [None] * 4 + ["it.py"] + [None] * 2
    for block in docs.blocks(page):
        assert lines[block.line - 1].strip() == block.text.splitlines()[0].strip()


def test_commands_of_a_page_have_line_parts_variables_and_output(page: pathlib.Path) -> None:
    found = docs.commands(page)
    assert [(command.line, command.parts) for command in found if not command.inline] == [
        (6, [["make", "demo"]]),
        (7, [["mrclab", "restore"], ["mrclab", "down"]]),
        (8, [["mrclab", "run", "x", "--set", "a=b c"]]),
        (14, [["mrclab", "sh"]]),
        (22, [["mrclab", "topo", "show", "tiny"]]),
        (25, [["p4lite", "compile", "x.p4", "-o", "x.json"]]),
    ]
    assert [(command.line, command.text) for command in found if command.inline] == [
        (3, "mrclab topo plan --radix 8"),
        (19, "mrclab list"),
    ]
    assert found[2].variables == {"MRCLAB_PURE": "1"}
    assert [command.output for command in found[4:6]] == [("planes 2", "..."), ()]
    assert found[3].reason == "it waits for ever"
    assert found[0].output is None


@pytest.mark.parametrize(
    ("text", "synopsis"),
    [
        ("mrclab up [LAB]", True),
        ("mrclab run EXPERIMENT|WORKLOAD", True),
        ("mrclab topo ...", True),
        ("p4lite compile AES.p4", True),
        ("MRCLAB_BMV2=... python -m benchmarks", True),
        ("mrclab run a --set size_bytes=65536", False),
        ("tshark -X lua_script:docs/mrc.lua -r capture.pcapng", False),
        ("mrclab fail h3:1", False),
        ("p4lite switch -i 1@veth1 fabric.p4", False),
    ],
)
def test_command_with_placeholders_is_a_synopsis(text: str, synopsis: bool) -> None:
    assert docs.Command(pathlib.Path("x.md"), 1, text, inline=True).is_synopsis == synopsis


@pytest.mark.parametrize(
    ("expected", "printed", "wrong"),
    [
        (["a", "b"], "a\nb\n", None),
        (["a", "b"], "a\nc\n", "'b'"),
        (["a", "..."], "a\nb\nc\n", None),
        (["...", "c"], "a\nb\nc\n", None),
        (["...", "c"], "a\nc\nd\n", "(nothing more)"),
        (["a ... c"], "a 1 2 3 c  \n\n", None),
        (["a ... c", ""], "a 1 2 3 d", "'a ... c'"),
        (["a"], "", "'a'"),
        ([], "", None),
        ([], "a", "(nothing more)"),
        (["...", "x", "...", "x"], "x\ny\nx\nx", None),
    ],
)
def test_difference_names_the_first_expected_line_that_is_missing(
    expected: list[str], printed: str, wrong: str | None
) -> None:
    found = docs.difference(expected, printed)
    assert found is None if wrong is None else found is not None and wrong in found


@given(st.lists(st.text(alphabet="ab.|(", min_size=1, max_size=6)), st.sets(st.integers(0, 9)))
def test_output_equals_itself_with_any_lines_replaced_by_dots(lines: list[str], out: set[int]) -> None:
    want = ["..." if index in out else line for index, line in enumerate(lines)]
    assert docs.difference(want, "\n".join(lines)) is None


def test_console_block_without_a_command_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("```console\nplanes 2\n```\n")
    with pytest.raises(ValueError, match=r"page\.md:2: a block `console` begins"):
        docs.commands(path)
