"""TFRecord data files: one `tf.train.Example` a row, put together column by column.

The format holds int64, float32 and bytes alone, so a tensor is stored as one of the first two, and the manifest says
which dtype it had. A record is length, checksum of the length, Example, checksum of the Example (the masked CRC-32C of
tensorflow/core/lib/io/record_writer.h). The rows of a block are a matrix of bytes with the same field of every row in
the same columns, and a mask where numbers need fewer bytes than in other rows; what it keeps is the file.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

import numpy as np

from connectors.base import StagedFile
from etl.core.errors import ConfigError, Damaged
from etl.tensors import crc32c
from etl.tensors.pack import ITEM_BYTES, check_fill, tensor_specs
from etl.tensors.segments import held_dtype
from etl.tensors.storage import HashingFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from etl.tensors.pack import ColumnPlan, PackPlan, TensorSpec
    from etl.tensors.segments import Contents

SUFFIX = ".tfrecord"
_BLOCK_BYTES = 2 << 20
"""Bytes of records that are put together at once: a few such matrices fit the cache."""
_HEAD = 12
"""Bytes of a record's length and of its checksum."""
_STORED = {"float64": "float32", "uint64": "int64"}
"""Dtypes that the format does not hold → what `--cast round` makes of them."""
_NAMED = 8
"""Columns named in an error."""
_FLOAT_LIST, _INT_LIST, _FIRST, _SECOND = b"\x12", b"\x1a", b"\x0a", b"\x12"
"""Protocol buffer tags, all of length-delimited fields: Feature's float_list and int64_list, fields 1 and 2."""

Size: TypeAlias = "int | NDArray[np.int64]"
"""Bytes of a field: the same in every row, or one number for each."""


@dataclass(frozen=True, slots=True)
class Feature:
    """How a tensor is stored.

    Attributes:
        type: int64 or float32.
        dtype: Of the tensor, in words.
        shape: Of one row.
        ragged: Whether a row has any number of them.
    """

    type: str
    dtype: str
    shape: tuple[int, ...]
    ragged: bool

    @classmethod
    def from_json(cls, entry: Mapping[str, object], /) -> Self:
        """The object of a manifest.

        Raises:
            TypeError, ValueError, KeyError: It is none. What is read here stands in the code that `reading` gives.
        """
        type_, dtype, shape = str(entry["type"]), str(entry["dtype"]), entry["shape"]
        if type_ not in {"int64", "float32"} or dtype not in ITEM_BYTES or not isinstance(shape, list):
            raise ValueError(f"{type_}, {dtype}, {shape}")
        return cls(type_, dtype, tuple(int(n) for n in shape), entry["ragged"] is True)


class _Piece(NamedTuple):
    """The same field of every row: bytes [rows, width], or [1, width] where they are equal, and which of them count."""

    data: NDArray[np.uint8]
    keep: NDArray[np.bool_] | None


class _Field(NamedTuple):
    """Pieces in order, and their bytes together."""

    pieces: tuple[_Piece, ...]
    size: Size


def fitted(plan: PackPlan, /) -> PackPlan:
    """The plan with dtypes that the format holds.

    Raises:
        ConfigError: Columns would be float64, uint64 or scaled decimals and may not be rounded; they are named. Or
            there is no tensor at all.
    """
    if not tensor_specs(plan):
        raise ConfigError(
            "no column is a tensor: all are kept as text, and --format tfrecord would write nothing",
            hint="Select a number too, or use --format parquet.",
        )
    lost = [c for c in plan.columns if c.tensor and (c.dtype in _STORED or c.scale is not None)]
    refused = [c for c in lost if c.cast == "exact"]
    if refused:
        named = ", ".join(
            f"{c.field.name} ({c.field.source_type or c.field.type}, {_said(c)})" for c in refused[:_NAMED]
        )
        more = f" and {len(refused) - _NAMED} more" if len(refused) > _NAMED else ""
        raise ConfigError(
            f"--format tfrecord holds int64 and float32 alone, and cannot hold {named}{more} exactly",
            hint="Use --cast round or saturate (float64 and decimal become float32, uint64 int64), --dtype float32 for "
            "values that are exact in it, another format, or leave the columns out.",
            column=refused[0].field.name,
        )
    return replace(plan, columns=tuple(_stored(c) if c in lost else c for c in plan.columns))


def _said(column: ColumnPlan) -> str:
    return "a decimal" if column.scale is not None else column.dtype


def _stored(column: ColumnPlan) -> ColumnPlan:
    dtype = "float32" if column.scale is not None else _STORED[column.dtype]
    check_fill(column.field, column.nulls, dtype)
    return replace(column, dtype=dtype, scale=None)


def features_json(plan: PackPlan, /) -> dict[str, dict[str, object]]:
    """`tfrecord_features` of the manifest: feature → how it is stored, the dtype and shape of its tensor."""
    return {
        spec.name: {
            "type": "float32" if _is_float(spec) else "int64",
            "dtype": spec.dtype,
            "shape": list(spec.row_shape),
            "ragged": spec.part == "items",
        }
        for spec in _features(tensor_specs(plan))
    }


def reading(features: Mapping[str, Feature], folder: str, split: str, /) -> str:
    """Python that reads a split in row order with TensorFlow.

    Args:
        features: `tfrecord_features` of the manifest.
        folder: The dataset.
        split: The split.
    """
    lines = ["import json, pathlib", "import tensorflow as tf", f"folder = pathlib.Path({folder!r})", "features = {"]
    for name, one in features.items():
        kind = f"tf.{one.type}"
        made = f"RaggedFeature({kind})" if one.ragged else f"FixedLenFeature({list(one.shape)}, {kind})"
        note = "" if one.dtype == one.type else f"  # was {one.dtype}"
        lines.append(f"    {name!r}: tf.io.{made},{note}")
    lines += [
        "}",
        "listed = json.loads((folder / '_manifest.json').read_text())['files']",
        f"files = [str(folder / one['path']) for one in listed if one['split'] == {split!r}]",
        "rows = tf.data.TFRecordDataset(files)",
        "rows = rows.map(lambda row: tf.io.parse_single_example(row, features))",
    ]
    return "\n".join(lines)


def check_first(path: Path, rows: int, names: Iterable[str], /) -> None:
    """Hold that a file begins with a whole record that has these features, or is empty for want of rows.

    Raises:
        Damaged: It does not.
    """
    with path.open("rb") as file:
        head = file.read(_HEAD)
        size = int.from_bytes(head[:8], "little")
        data = file.read(min(size, path.stat().st_size) + 4)
    if not rows and not head:
        return
    whole = rows and len(head) == _HEAD and len(data) == size + 4
    if not whole or _sum(head[:8]) != head[8:] or _sum(data[:size]) != data[size:]:
        raise Damaged(f"{path} does not begin with a whole record", path=str(path))
    missing = [name for name in names if _key(name.encode()) not in data]
    if missing:
        raise Damaged(f"{path} holds no feature {missing[0]}", path=str(path))


def _sum(data: bytes) -> bytes:
    return crc32c.masked(np.frombuffer(data, np.uint8)[None]).tobytes()


def encode(folder: Path, stem: str, end: str, contents: Contents, /) -> StagedFile:
    """Write one file; its size differs from that of the tensors, since numbers near zero are short."""
    file = HashingFile(folder / f"{stem}{SUFFIX}{end}")
    try:
        for rows, values in _blocks(contents):
            records: Any = _in_order(_features(contents.specs), rows, values)  # the stubs know no buffer protocol
            file.write(records)
    finally:
        file.close()
    path = str(file.path.relative_to(folder))
    return StagedFile(path, contents.split, contents.rows, file.size, file.hexdigest())


def _is_float(spec: TensorSpec) -> bool:
    return spec.dtype.startswith(("float", "bfloat"))


def _features(specs: Sequence[TensorSpec]) -> list[TensorSpec]:
    """In the order of their names. Lengths of ragged lists are those of the features themselves."""
    return sorted((s for s in specs if s.part != "lengths"), key=lambda s: s.name.encode())


class _Items:
    """The items of a ragged list, taken in order from the pieces in which they were gathered."""

    def __init__(self, pieces: Iterable[NDArray[Any]], dtype: str) -> None:
        self._pieces = iter(pieces)
        self._have: NDArray[Any] = np.zeros(0, held_dtype(dtype))

    def take(self, count: int) -> NDArray[Any]:
        """The next items, [count]."""
        held, have = [self._have], len(self._have)
        while have < count:
            held.append(next(self._pieces))
            have += len(held[-1])
        joined = np.concatenate(held) if len(held) > 1 else held[0]
        self._have = joined[count:]
        return joined[:count]


def _blocks(contents: Contents) -> Iterator[tuple[int, dict[str, NDArray[Any]]]]:
    """Rows, and tensor → their values [rows, items of a row], or [items] of ragged lists."""
    fixed = [i for i, s in enumerate(contents.specs) if s.part != "items"]
    ragged = {s.name: _Items(contents.chunks(i), s.dtype) for i, s in enumerate(contents.specs) if s.part == "items"}
    # Ten bytes hold any number; five are what most need.
    width = sum(s.row_bytes if _is_float(s) else 5 * s.row_bytes // ITEM_BYTES[s.dtype] for s in contents.specs)
    step = max(64, _BLOCK_BYTES // (width + 16 * len(contents.specs) + 1))
    pieces = zip(*(contents.chunks(i) for i in fixed), strict=True)
    left = contents.rows
    for piece in pieces:
        specs = [contents.specs[i] for i in fixed]
        sized = next((i for i, s in enumerate(specs) if s.row_bytes), None)
        count = left if sized is None else piece[sized].nbytes // specs[sized].row_bytes
        whole = {
            s.name: p.view(np.uint8).view(held_dtype(s.dtype)).reshape(count, s.row_bytes // ITEM_BYTES[s.dtype])
            for s, p in zip(specs, piece, strict=True)
        }
        for first in range(0, count, step):
            block = {name: values[first : first + step] for name, values in whole.items()}
            for name, items in ragged.items():
                block[name] = items.take(int(block[_lengths_of(name)].sum(dtype=np.int64)))
            yield min(step, count - first), block
        left -= count
        if not left:
            return


def _lengths_of(name: str) -> str:
    return f"{name.removesuffix('.values')}.lengths"


def _in_order(features: Sequence[TensorSpec], rows: int, block: Mapping[str, NDArray[Any]]) -> NDArray[np.uint8]:
    """The records of a block, front to back.

    Where there are ragged lists, rows of about the same length are put together, so that a long row does not make the
    matrix wide for all.
    """
    ragged = [s.name for s in features if s.part == "items"]
    if not ragged:
        return _records(features, {s.name: _numbers(s, block[s.name]) for s in features}, {}, rows)[0]
    lengths = {n: block[_lengths_of(n)].reshape(-1).astype(np.int64) for n in ragged}
    starts = {n: np.cumsum(v) - v for n, v in lengths.items()}
    total = np.sum(list(lengths.values()), axis=0)
    bits = np.frexp(total.astype(np.float64))[1]
    sizes = np.zeros(rows, np.int64)
    made: list[tuple[NDArray[np.int64], NDArray[np.uint8]]] = []
    for group in _groups(bits, total):
        values = {}
        masks = {}
        for spec in features:
            if spec.part != "items":
                values[spec.name] = _numbers(spec, block[spec.name][group])
                continue
            count = lengths[spec.name][group]
            places = np.arange(count.max(initial=0))
            masks[spec.name] = places < count[:, None]
            at = np.where(masks[spec.name], starts[spec.name][group][:, None] + places, 0)
            items = block[spec.name]
            values[spec.name] = _numbers(spec, items[at] if len(items) else items[:0].reshape(len(group), 0))
            values[spec.name][~masks[spec.name]] = 0
        data, sizes[group] = _records(features, values, masks, len(group))
        made.append((group, data))
    if len(made) == 1:
        return made[0][1]
    ends = np.cumsum(sizes)
    out = np.empty(int(ends[-1]), np.uint8)
    for group, data in made:
        size = sizes[group]
        shift = (ends[group] - size) - (np.cumsum(size) - size)
        out[np.repeat(shift, size) + np.arange(len(data))] = data
    return out


def _groups(bits: NDArray[Any], total: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Rows of about as many items, in as small numbers as keep their matrix small."""
    for one in np.unique(bits):
        rows = np.flatnonzero(bits == one)
        step = max(1, _BLOCK_BYTES // (8 * max(1, int(total[rows].max()))))
        for first in range(0, len(rows), step):
            yield rows[first : first + step]


def _numbers(spec: TensorSpec, values: NDArray[Any]) -> NDArray[Any]:
    """The values as int64 or float32; both are exact."""
    if spec.dtype == "bfloat16":
        return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return values.astype(np.float32 if _is_float(spec) else np.int64)


def _records(
    features: Sequence[TensorSpec],
    values: Mapping[str, NDArray[Any]],
    masks: Mapping[str, NDArray[np.bool_]],
    rows: int,
) -> tuple[NDArray[np.uint8], Size]:
    """The records of some rows front to back, and the bytes of each."""
    fields = [_feature(spec.name, values[spec.name], masks.get(spec.name)) for spec in features]
    example = _within(_FIRST, _joined(fields))
    pieces = _merged(example.pieces)
    width = sum(p.data.shape[1] for p in pieces)
    out = np.empty((rows, _HEAD + width + 4), np.uint8)
    kept = np.ones(out.shape, np.bool_) if any(p.keep is not None for p in pieces) else None
    at = _HEAD
    for piece in pieces:
        stop = at + piece.data.shape[1]
        out[:, at:stop] = piece.data
        if kept is not None and piece.keep is not None:
            kept[:, at:stop] = piece.keep
        at = stop
    sizes = np.broadcast_to(np.asarray(example.size, np.int64), rows)
    head = np.empty((rows, _HEAD), np.uint8)
    head[:, :8] = sizes.astype("<u8").view(np.uint8).reshape(rows, 8)
    head[:, 8:] = _bytes_of(crc32c.masked(np.ascontiguousarray(head[:, :8])))
    whole = sizes + (_HEAD + 4)
    if kept is None:
        out[:, :_HEAD] = head
        out[:, _HEAD + width :] = _bytes_of(crc32c.masked(out[:, _HEAD : _HEAD + width]))
        return out.reshape(-1), whole
    # The checksum wants messages that end together, after zeros: what is kept moves to the right.
    out[:, :_HEAD] = 0
    records = out[kept]
    moved = np.zeros(out.shape, np.uint8)
    moved[np.arange(out.shape[1]) >= (out.shape[1] - whole)[:, None]] = records
    ends = np.cumsum(whole)
    records[(ends - whole)[:, None] + np.arange(_HEAD)] = head
    records[ends[:, None] + np.arange(-4, 0)] = _bytes_of(crc32c.masked(moved[:, :-4], _HEAD + width - sizes))
    return records, whole


def _merged(pieces: Sequence[_Piece]) -> list[_Piece]:
    """Neighbours that are the same in every row as one piece: each piece is written to every row."""
    found: list[_Piece] = []
    for piece in pieces:
        if found and piece.keep is None and found[-1].keep is None and len(piece.data) == len(found[-1].data) == 1:
            found[-1] = _Piece(np.concatenate([found[-1].data, piece.data], axis=1), None)
        else:
            found.append(piece)
    return found


def _bytes_of(sums: NDArray[np.uint32]) -> NDArray[np.uint8]:
    return sums.astype("<u4").view(np.uint8).reshape(-1, 4)


def _feature(name: str, values: NDArray[Any], mask: NDArray[np.bool_] | None) -> _Field:
    """The map entry of one feature: its name, and its list of numbers [rows, items]."""
    if values.dtype == np.float32:
        rows, items = values.shape
        data = np.ascontiguousarray(values, "<f4").view(np.uint8).reshape(rows, 4 * items)
        keep = None if mask is None else np.repeat(mask, 4, axis=1)
        tag = _FLOAT_LIST
    else:
        data, keep = _varints(values.view(np.uint64), mask)
        tag = _INT_LIST
    numbers = _Field((_Piece(data, keep),), data.shape[1] if keep is None else np.count_nonzero(keep, axis=1))
    one = _within(tag, _unless_empty(_within(_FIRST, numbers), numbers.size))
    key = _Field((_constant(_key(name.encode())),), len(_key(name.encode())))
    return _within(_FIRST, _joined([key, _within(_SECOND, one)]))


def _key(name: bytes) -> bytes:
    return _FIRST + _varint(len(name)) + name


def _unless_empty(field: _Field, content: Size) -> _Field:
    """A packed list without items is left out, as protocol buffers' own writers do."""
    if isinstance(content, int):
        return field if content else _Field((), 0)
    filled = content > 0
    if filled.all():
        return field
    pieces = tuple(
        _Piece(p.data, np.broadcast_to(filled[:, None] & (True if p.keep is None else p.keep), (len(filled), w)))
        for p in field.pieces
        for w in [p.data.shape[1]]
    )
    return _Field(pieces, np.where(filled, field.size, 0))


def _within(tag: bytes, field: _Field) -> _Field:
    """A field of variable length: tag, bytes, content."""
    if isinstance(field.size, int):
        head = tag + _varint(field.size)
        return _Field((_constant(head), *field.pieces), len(head) + field.size)
    data, keep = _varints(field.size.astype(np.uint64)[:, None], None)
    length: Size = data.shape[1] if keep is None else np.count_nonzero(keep, axis=1)
    return _Field((_constant(tag), _Piece(data, keep), *field.pieces), len(tag) + length + field.size)


def _joined(fields: Sequence[_Field]) -> _Field:
    size: Size = 0
    for one in fields:
        size = size + one.size
    return _Field(tuple(p for one in fields for p in one.pieces), size)


def _constant(data: bytes) -> _Piece:
    return _Piece(np.frombuffer(data, np.uint8)[None], None)


def _varint(value: int) -> bytes:
    data, _ = _varints(np.array([[value]], np.uint64), None)
    return data.tobytes()


def _varints(
    values: NDArray[np.uint64], mask: NDArray[np.bool_] | None
) -> tuple[NDArray[np.uint8], NDArray[np.bool_] | None]:
    """Numbers [rows, items] in sevens of bits, lowest first, with a bit for "more follows": [rows, items * most bytes].

    Returns:
        The bytes, and which of them count; None: all.
    """
    rows, items = values.shape
    seven, low = np.uint64(7), np.uint64(0x7F)
    most = -(-max(1, int(values.max(initial=0)).bit_length()) // 7)
    out = np.empty((rows, items, most), np.uint8)
    keep = np.ones((rows, items, most), np.bool_)
    rest = values
    for place in range(most):
        after = rest >> seven
        out[..., place] = (rest & low) | ((after != 0).astype(np.uint64) << seven)
        if place:
            keep[..., place] = rest != 0
        rest = after
    if mask is not None:
        keep &= mask[..., None]
    every = mask is None and (most == 1 or bool(keep.all()))
    return out.reshape(rows, items * most), None if every else keep.reshape(rows, items * most)
