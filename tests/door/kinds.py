"""Every Arrow type that a connector can give: what a frame carries it as, and what cuDF's two checks say of it."""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa


class Kind(NamedTuple):
    """One Arrow type.

    Attributes:
        type: As a connector gives it.
        carried: As what a frame carries it; None: refused.
        python, library: Whether `cudf_dtype_from_pa_type` and `pylibcudf.DataType.from_arrow` take it as it comes.
    """

    type: pa.DataType
    carried: pa.DataType | None
    python: bool = True
    library: bool = True


def _same(*kinds: pa.DataType) -> list[Kind]:
    return [Kind(kind, kind) for kind in kinds]


_PAIR: Final = pa.struct([("key", pa.string()), ("value", pa.string())])
_DICTIONARY: Final = pa.dictionary(pa.int32(), pa.string())

KINDS: Final = (
    *_same(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *_same(pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.date32()),
    *_same(pa.decimal128(5, 2), pa.decimal128(38, 18), pa.timestamp("us"), pa.duration("us")),
    *_same(pa.list_(pa.int32()), pa.list_(pa.list_(pa.string())), pa.struct([("a", pa.int32()), ("b", pa.string())])),
    Kind(pa.large_string(), pa.string()),
    Kind(pa.string_view(), pa.string()),
    Kind(pa.decimal32(5, 2), pa.decimal128(5, 2)),
    Kind(pa.decimal64(12, 2), pa.decimal128(12, 2)),
    Kind(pa.timestamp("s"), pa.timestamp("us")),
    Kind(pa.timestamp("ms"), pa.timestamp("us")),
    Kind(pa.timestamp("ns"), pa.timestamp("us")),
    Kind(pa.duration("s"), pa.duration("us")),
    Kind(pa.duration("ns"), pa.duration("us")),
    # The library takes neither by itself; from_arrow takes both apart.
    Kind(pa.timestamp("us", tz="UTC"), pa.timestamp("us", tz="UTC"), library=False),
    Kind(_DICTIONARY, _DICTIONARY, python=False, library=False),
    Kind(pa.timestamp("us", tz="+05:30"), pa.timestamp("us", tz="UTC"), python=False, library=False),
    Kind(pa.dictionary(pa.int8(), pa.string()), _DICTIONARY, python=False, library=False),
    Kind(pa.decimal256(40, 2), pa.decimal128(38, 2), python=False, library=False),
    Kind(pa.decimal256(76, 39), None, python=False, library=False),
    Kind(pa.float16(), pa.float32(), library=False),
    Kind(pa.date64(), pa.date32(), library=False),
    Kind(pa.time32("s"), pa.duration("us"), python=False, library=False),
    Kind(pa.time64("us"), pa.duration("us"), python=False, library=False),
    Kind(pa.large_list(pa.int32()), pa.list_(pa.int32()), python=False, library=False),
    Kind(pa.list_(pa.float32(), 3), pa.list_(pa.float32()), python=False, library=False),
    Kind(pa.list_(pa.float16(), 3), pa.list_(pa.float32()), python=False, library=False),
    Kind(pa.map_(pa.string(), pa.string()), pa.list_(_PAIR), library=False),
    Kind(pa.uuid(), pa.string(), python=False, library=False),
    Kind(pa.json_(), pa.string(), python=False, library=False),
    Kind(pa.binary(), None, library=False),
    Kind(pa.large_binary(), None, library=False),
    Kind(pa.binary(16), None, library=False),
    Kind(pa.month_day_nano_interval(), None, python=False, library=False),
    Kind(pa.null(), None),
    Kind(pa.list_(pa.binary()), None, library=False),
    Kind(pa.struct([("a", pa.binary())]), None, library=False),
)
