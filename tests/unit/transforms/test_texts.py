"""Texts in one form, beside Python's unicodedata and str."""

from __future__ import annotations

import unicodedata
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etl.core.errors import ConfigError
from etl.core.schema import Field, Schema
from etl.transforms import TextNormalize
from etl.transforms.fit import planned
from tests.preparing import through

ARROW: Any = pa
"""Without the overloads that its stubs have for every type."""
SPACES = "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000"
# Characters that Unicode has had for long: Python and Arrow are of different versions of it.
LETTERS = "aZé\u0301EÅ\u212bßẞİI\u0131Σ\u03c3ςДЖﬁ①가\u1100\u1161\u200b€"
TEXT = st.text(st.sampled_from(SPACES + LETTERS + "ab "), max_size=8)


def lower(text: str) -> str:
    """Character by character: Python's `lower` looks at the neighbours of a sigma, and makes two characters of İ."""
    return "".join("i" if one == "\u0130" else one.lower() for one in text)


def normal(text: str, step: TextNormalize) -> str:
    if step.form is not None:
        text = unicodedata.normalize(step.form, text)
    if step.lower:
        text = lower(text)
        text = text if step.form is None else unicodedata.normalize(step.form, text)
    if step.collapse:
        text = "".join(" " if one.isspace() else one for one in text)
        while "  " in text:
            text = text.replace("  ", " ")
    return text.strip() if step.strip else text


@given(
    st.lists(st.one_of(st.none(), TEXT), max_size=20),
    st.sampled_from(["NFC", "NFD", "NFKC", "NFKD", None]),
    st.sets(st.sampled_from(["lower", "strip", "collapse"])),
    st.sampled_from([1, 3, 50]),
)
@example(["a  b", "c"] * 9 + [None, "\u3000", "é\u2003x"], "NFC", {"lower", "strip", "collapse"}, 50)
@example(["a  b", "C"] * 9 + [None, "", " "], "NFC", {"lower", "strip", "collapse"}, 50)
def test_texts_are_those_of_python(values: list[str | None], form: Any, done: set[str], rows: int) -> None:
    step = TextNormalize("v", form, lower="lower" in done, strip="strip" in done, collapse="collapse" in done)
    table = pa.table({"v": ARROW.array(values, pa.string())})
    right = [None if v is None else normal(v, step) for v in values]
    assert through([step], table, batch_rows=rows).column("v").to_pylist() == right
    assert through([step], table.slice(1), batch_rows=50).column("v").to_pylist() == right[1:]


def test_labels_and_large_texts_become_text() -> None:
    for kind in (pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.string_view()):
        out = through([TextNormalize("v")], pa.table({"v": ARROW.array([" A", None, "b "], kind)}))
        assert out.schema.field("v").type == pa.string()
        assert out.column("v").to_pylist() == ["a", None, "b"]


def test_what_is_no_text_or_no_form_is_refused() -> None:
    with pytest.raises(ConfigError, match="v is int64, not text"):
        planned([TextNormalize("v")], Schema((Field("v", pa.int64()),)))
    with pytest.raises(ConfigError, match="the form is 'NFX'"):
        TextNormalize("v", "NFX")  # type: ignore[arg-type]
