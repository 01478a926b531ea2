"""Arrow types in words."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.core.arrow_types import parse_type
from etl.core.errors import ConfigError

PLAIN = st.sampled_from(
    [
        pa.bool_(),
        pa.int8(),
        pa.uint64(),
        pa.float32(),
        pa.float64(),
        pa.string(),
        pa.binary(),
        pa.timestamp("ns"),
        pa.timestamp("us", tz="UTC"),
        pa.time64("us"),
        pa.duration("ms"),
        pa.decimal128(38, 18),
        pa.decimal256(76, 38),
        pa.decimal128(5, -2),
    ]
)


def words(kind: pa.DataType) -> str:
    return f"list({words(kind.value_type)})" if pa.types.is_list(kind) else str(kind).replace("tz=", "")


@given(st.recursive(PLAIN, lambda inner: st.builds(pa.list_, inner), max_leaves=3))
def test_words_give_the_type_back(kind: pa.DataType) -> None:
    text = words(kind).replace("halffloat", "float16")
    assert parse_type(text) == kind
    assert parse_type(f" {text} ") == kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("decimal(38,18)", pa.decimal128(38, 18)),
        ("decimal(39, 2)", pa.decimal256(39, 2)),
        ("decimal(10)", pa.decimal128(10, 0)),
        ("date32", pa.date32()),
        ("uuid", pa.uuid()),
        ("timestamp[us, UTC]", pa.timestamp("us", tz="UTC")),
        ("double", pa.float64()),
    ],
)
def test_everyday_words(text: str, kind: pa.DataType) -> None:
    assert parse_type(text) == kind


@pytest.mark.parametrize(
    "text",
    [
        "",
        "int",
        "int65",
        "decimal",
        "decimal(0,0)",
        "decimal(77,1)",
        "list",
        "list()",
        "time64[s]",
        "hex",
        "list(int32",
    ],
)
def test_other_words_are_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a type"):
        parse_type(text)
