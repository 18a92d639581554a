"""Typed documents: what is encoded decodes to the same; what was damaged is refused with the key that is wrong."""

from __future__ import annotations

import contextlib
import json
import typing
from dataclasses import dataclass, field
from enum import Enum, IntEnum, StrEnum
from typing import Annotated, Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_host import answers, ctl_requests, requests
from mrc_topo.base.plain import OMIT_NONE, DecodeError, Range, decode, encode
from support.amount import examples

MODELS = [
    answers.JobProgress, answers.JobWaiting, answers.MrcHostStatistics, answers.RoceHostStatistics, answers.Sample,
    answers.HostFidelity, answers.ProbeRow, answers.QpEvent, answers.EvEvent, answers.FaultEvent, answers.PortEvent,
    requests.HostSummary, requests.View, ctl_requests.EvList, ctl_requests.PairDocument, ctl_requests.DeviceDocument,
    ctl_requests.SetEvs, ctl_requests.ReplaceEv, ctl_requests.ProbeEvs, ctl_requests.CreateEventQueue,
    ctl_requests.SetProfileState,
]  # fmt: skip


class Colour(Enum):
    RED = 1
    BLUE = 0


class Number(IntEnum):
    ZERO = 0
    ONE = 1


class Word(StrEnum):
    AND = "and"


class Pair(NamedTuple):
    ev: int
    plane: int


@dataclass(frozen=True)
class Inner:
    low: Annotated[int, Range(0, 3)]


@dataclass(frozen=True)
class Outer:
    name: str
    colour: Colour = Colour.BLUE
    number: Number = Number.ZERO
    word: Word = Word.AND
    pairs: list[Pair] = field(default_factory=list)
    table: dict[int, Inner] = field(default_factory=dict)
    both: tuple[int, str] | None = field(default=None, metadata=OMIT_NONE)


def through_text(value: object) -> Any:
    return json.loads(json.dumps(encode(value)))


@settings(max_examples=examples(100))
@given(st.data())
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_answers_decode_to_what_was_encoded(model: type, data: st.DataObject) -> None:
    document = through_text(data.draw(st.from_type(model)))
    assert json.dumps(encode(decode(model, document))) == json.dumps(document)


def places(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    rows: typing.Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict | list):
        rows = value.items() if isinstance(value, dict) else enumerate(value)
    return [path, *(place for key, each in rows for place in places(each, (*path, key)))]


@settings(max_examples=examples(100))
@given(st.data())
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_a_damaged_document_is_refused_or_read_and_never_fails_otherwise(model: type, data: st.DataObject) -> None:
    document = through_text(data.draw(st.from_type(model)))
    *path, last = data.draw(st.sampled_from([place for place in places(document) if place]))
    holder = document
    for key in path:
        holder = holder[key]
    if data.draw(st.booleans()):
        holder[last] = data.draw(st.sampled_from([None, True, 1.5, "x", [], {}, [[]], 1 << 80]))
    else:
        del holder[last]
    with contextlib.suppress(DecodeError):
        made: object = decode(model, document)
        assert json.dumps(encode(decode(model, through_text(made)))) == json.dumps(encode(made))


def test_every_kind_of_value_travels() -> None:
    made = Outer("a", Colour.RED, Number.ONE, Word.AND, [Pair(7, 1)], {4: Inner(2)}, (1, "b"))
    document = through_text(made)
    assert document == {
        "name": "a", "colour": "RED", "number": 1, "word": "and", "pairs": [[7, 1]], "table": {"4": {"low": 2}},
        "both": [1, "b"],
    }  # fmt: skip
    assert decode(Outer, document) == made
    assert "both" not in encode(Outer("a"))
    assert decode(Outer, {"name": "a", "colour": "BLUE", "number": 0}) == Outer("a")


def test_every_number_of_a_list_is_checked() -> None:
    assert decode(list[int], [1, 2]) == [1, 2]
    assert decode(tuple[float, ...], [1, 2.5]) == (1, 2.5)
    with pytest.raises(DecodeError, match=r"\[2\] is True; expected: an integer"):
        decode(list[int], [1, 2, True])
    with pytest.raises(DecodeError, match=r"\[0\] is 1\.5; expected: an integer"):
        decode(list[int], [1.5])


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "key 'name' is missing"),
        ({"name": "a", "nmae": 1}, "unknown key 'nmae'; known: both, colour, name, number, pairs, table, word"),
        ({"name": 1}, "name is 1; expected: a text"),
        ({"name": "a", "number": True}, "number is True; expected: one of 0, 1"),
        ({"name": "a", "colour": 1}, "colour is 1; expected: one of RED, BLUE"),
        ({"name": "a", "pairs": [[1]]}, r"pairs\[0\] is \[1\]; expected: a list of ev, plane"),
        ({"name": "a", "table": {"x": {}}}, "table is 'x'; expected: a whole number as a key"),
        ({"name": "a", "table": {"1": {"low": 4}}}, r"table\['1'\]\.low is 4; expected: an integer from 0 to 3"),
        ({"name": "a", "both": [1, 2]}, r"both\[1\] is 2; expected: a text"),
        ([], r"the document is \[\]; expected: an object"),
    ],
)
def test_errors_name_key_and_what_is_expected(document: object, message: str) -> None:
    with pytest.raises(DecodeError, match=message):
        decode(Outer, document)


def test_documents_of_other_versions_are_read() -> None:
    row = decode(answers.JobProgress, {"iterations": 3, "later": {"a": 1}}, lenient=True)
    assert (row.iterations, row.takes_part, row.measured) == (3, True, None)
