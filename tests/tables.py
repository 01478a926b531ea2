"""Tables of any numbers, for tests of what is written: every type that is a tensor, with values missing anywhere."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as arrow  # noqa: ICN001 - `pa` is its untyped door, below
from hypothesis import strategies as st

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

pa: Any = arrow  # the stubs do not know short lists as columns

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def _bounds(kind: str) -> SearchStrategy[int]:
    bits = int(kind.lstrip("uint"))
    edge = 1 << bits if kind.startswith("u") else 1 << (bits - 1)
    low, high = (0, edge - 1) if kind.startswith("u") else (-edge, edge - 1)
    return st.integers(low, high) | st.integers(max(low, -3), min(high, 130))


def columns() -> dict[str, tuple[Any, SearchStrategy[Any]]]:
    """Column name → Arrow type and values."""
    found: dict[str, tuple[Any, SearchStrategy[Any]]] = {k: (getattr(pa, k)(), _bounds(k)) for k in INTEGERS}
    found["bool"] = pa.bool_(), st.booleans()
    found["float16"] = pa.float16(), st.floats(width=16, allow_nan=False)
    found["float32"] = pa.float32(), st.floats(width=32)
    found["float64"] = pa.float64(), st.floats()
    found["decimal"] = pa.decimal128(9, 2), st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: Decimal(n).scaleb(-2))
    found["at"] = pa.timestamp("us", "UTC"), st.integers(-(2**62), 2**62)
    found["emb"] = pa.list_(pa.float32(), 3), st.lists(st.floats(width=32), min_size=3, max_size=3)
    found["none"] = pa.list_(pa.int16(), 0), st.just([])
    found["tags"] = pa.list_(pa.int64()), st.lists(_bounds("int64"), max_size=9)
    found["weights"] = pa.list_(pa.float32()), st.lists(st.floats(width=32), max_size=3)
    found["word"] = pa.string(), st.text(max_size=3)
    return found


@st.composite
def tables(draw: DrawFn, rows: int = 12) -> Any:
    """A table of some of these columns, nullable or not, with at least one number."""
    known = columns()
    names = draw(st.lists(st.sampled_from(sorted(known)), max_size=6, unique=True))
    if "int16" not in names:
        names.append("int16")
    count = draw(st.integers(0, rows))
    arrays, fields = [], []
    for name in names:
        kind, values = known[name]
        nullable = draw(st.booleans())
        one = values | st.none() if nullable else values
        arrays.append(pa.array(draw(st.lists(one, min_size=count, max_size=count)), kind))
        fields.append(pa.field(name, kind, nullable=nullable))
    return pa.table(arrays, schema=pa.schema(fields))
