"""The door to frames: which Arrow types a frame carries, and as what. An allow-list; every other type is refused.

The list is that of both engines, so that a function sees the same columns on pandas and on cuDF. cuDF's own checks
are no rule: its Python part accepts types (binary, map) at which its C++ part fails, and the other way round.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from etl.core.errors import CastError, SchemaError
from etl.core.late import Late
from etl.core.schema import Field, Schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow.compute as pc
else:
    pc = Late("pyarrow.compute")

CHUNKS: Final = 10
"""Columns of more chunks are combined before they are imported: an import costs a copy per chunk and buffer."""

_PRECISION: Final = 38
_DAY_US: Final = 86_400_000_000
_SAME: Final[frozenset[pa.DataType]] = frozenset(
    {
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.uint8(),
        pa.uint16(),
        pa.uint32(),
        pa.uint64(),
        pa.float32(),
        pa.float64(),
        pa.bool_(),
        pa.date32(),
    }
)
_CHANGED: Final[Mapping[pa.DataType, pa.DataType]] = {
    pa.float16(): pa.float32(),
    pa.string(): pa.string(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.date64(): pa.date32(),
    pa.uuid(): pa.string(),
}


def carried(kind: pa.DataType, /, *, column: str) -> pa.DataType:
    """The type as which a frame carries a column of type `kind`.

    Raises:
        SchemaError: No frame carries it; the message says what to write instead.
    """
    if kind in _SAME:
        return kind
    if kind in _CHANGED:
        return _CHANGED[kind]
    if pa.types.is_dictionary(kind):
        values: Any = carried(_inside(kind).value_type, column=column)
        return pa.dictionary(pa.int32(), values)
    if pa.types.is_decimal(kind):
        return _decimal(kind, column)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=None if _inside(kind).tz is None else "UTC")
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        return pa.duration("us")
    if isinstance(kind, pa.JsonType):
        return pa.string()
    if pa.types.is_nested(kind):
        return _nested(kind, column)
    raise _refused(kind, column)


def carried_field(field: Field, /) -> Field:
    """The field of the same column in a frame; words and vocabulary stay.

    Raises:
        SchemaError: No frame carries its type.
    """
    kind = carried(field.type, column=field.name)
    return field if kind == field.type else replace(field, type=kind)


def carried_schema(schema: Schema, /) -> Schema:
    """The schema of a frame over this source.

    Raises:
        SchemaError: A column has a type that no frame carries; it is named.
    """
    return Schema(tuple(carried_field(one) for one in schema))


def carry(table: pa.Table, schema: Schema, /, *, combine: bool = True) -> pa.Table:
    """The table with every column in its carried type: one dictionary per column, no metadata, few chunks.

    Args:
        table: Rows exactly of the schema's columns, in its order.
        schema: What the source says; dictionaries with a vocabulary come out with exactly that vocabulary.
        combine: Make few chunks of many; not for a caller that copies every chunk to its place anyway.

    Raises:
        SchemaError: Columns are not those of the schema, or no frame carries a type.
        CastError: A value does not fit its carried type; column and value are named.
    """
    if tuple(table.column_names) != schema.names:
        raise SchemaError(
            f"rows have the columns {', '.join(table.column_names)}; the schema says {', '.join(schema.names)}"
        )
    columns = [_carry_column(table.column(i), one) for i, one in enumerate(schema)]
    # Stale metadata of pandas would set an index.
    made = pa.Table.from_arrays(columns, names=list(schema.names)).unify_dictionaries().replace_schema_metadata(None)
    return few_chunks(made) if combine else made


def few_chunks(table: pa.Table, /) -> pa.Table:
    """The table with at most `CHUNKS` chunks in each column."""
    return table.combine_chunks() if any(column.num_chunks > CHUNKS for column in table.columns) else table


def read_files(paths: Sequence[str], /) -> pa.Table:
    """The rows of these Arrow IPC files, one after another, mapped and not copied; dictionaries may differ."""
    tables = []
    for path in paths:
        with pa.memory_map(path) as mapped, pa.ipc.open_file(mapped) as reader:
            tables.append(reader.read_all())
    return pa.concat_tables(tables)


def carry_vocabulary(values: Any, vocabulary: tuple[str, ...], /, *, column: str) -> Any:
    """Text as dictionary<int32, string> over exactly this vocabulary; NULL stays NULL.

    Args:
        values: A string or dictionary (Chunked)Array.
        vocabulary: All labels, in their order.
        column: For the error.

    Raises:
        CastError: A value is none of the labels.
    """
    labels = pa.array(vocabulary, pa.string())
    chunks = [_on_vocabulary(one, labels, column) for one in (values.chunks if hasattr(values, "chunks") else [values])]
    return _chunked(chunks, pa.dictionary(pa.int32(), pa.string()))


def exact(values: Any, kind: pa.DataType, /, *, column: str) -> Any:
    """The same values in another type.

    Raises:
        CastError: A value changes or does not fit; Arrow's words name it.
    """
    if values.type == kind:
        return values
    try:
        made = values.cast(kind)
    except pa.ArrowInvalid as error:
        raise CastError(f"column {column} does not fit {kind}: {error}", column=column) from error
    if pa.types.is_date(kind):  # Arrow drops the time of day without a word
        lost = pc.filter(values, pc.not_equal(made.cast(values.type), values))
        if len(lost):
            raise CastError(
                f"column {column} is a date; {lost[0]} has a time of day",
                hint="""Give the result another name to keep it as a moment, or .dt.floor("D") it.""",
                column=column,
            )
    return made


def to_declared(values: pa.ChunkedArray[Any], field: Field, /) -> Any:
    """A column of a frame in the declared type, exactly; both engines leave by here.

    Widths may differ (the same sum is int32 on one engine and int64 on the other), kinds may not.

    Raises:
        SchemaError: The column is of another kind than declared.
        CastError: A value does not fit; column and value are named.
    """
    have, want, name = values.type, field.type, field.name
    if have == want:
        return values
    if field.vocabulary is not None and _kind_of(have) == "text":
        return carry_vocabulary(values, field.vocabulary, column=name)
    if _kind_of(have) != _kind_of(want):
        raise SchemaError(
            f"column {name} came out of the function as {str(have).removeprefix('large_')}; {want} was declared",
            hint=f"""Cast it in the function: frame["{name}"].astype(…).""",
            column=name,
        )
    if pa.types.is_time(want):
        return _time_of_day(values, field)
    if pa.types.is_floating(have) and pa.types.is_floating(want):
        return _narrowed(values, field)
    return exact(values, want, column=name)


def unique_names(labels: Sequence[object], /) -> tuple[str, ...]:
    """The labels of a frame's columns, which must be texts that differ: another frame library has no other.

    Raises:
        SchemaError: One is no text, or comes twice.
    """
    seen: list[str] = []
    for label in labels:
        if not isinstance(label, str):
            raise SchemaError(
                f"the function's frame has a column named {label!r}, a {type(label).__name__}",
                hint='Name columns by text: frame.columns = ["a", "b", …].',
            )
        if label in seen:
            raise SchemaError(f"the function's frame has two columns named {label}", hint="Rename one.", column=label)
        seen.append(label)
    return tuple(seen)


def keys_are_columns(index: Sequence[object], columns: Sequence[str], /) -> None:
    """Hold that no key is lost with a frame's index: only columns become Arrow.

    Args:
        index: The names of the frame's index; None where it has none.
        columns: Of the frame.

    Raises:
        SchemaError: The index has a name that is no column's, as after a group or `set_index`.
    """
    lost = [str(name) for name in index if name is not None and name not in columns]
    if lost:
        raise SchemaError(
            f"the frame's index is named {', '.join(lost)} and is no column: its values would be lost",
            hint="Write .reset_index() to keep them as a column, .reset_index(drop=True) to leave them out.",
        )


def declared_columns(have: tuple[str, ...], want: tuple[str, ...], /) -> None:
    """Hold that a frame has the declared columns in the declared order.

    Raises:
        SchemaError: It has not; what is missing, and what is there instead, is named.
    """
    if have == want:
        return
    missing = [name for name in want if name not in have]
    unknown = [name for name in have if name not in want]
    if missing or unknown:
        said = [f"lacks {', '.join(missing)}"] if missing else []
        said += [f"has {', '.join(unknown)}, not declared"] if unknown else []
        message = f"the function's frame {' and '.join(said)}"
    else:
        message = f"the function's frame has its columns in the order {', '.join(have)}"
    raise SchemaError(
        message, hint=f"Declared are {', '.join(want)}: which columns there are may not depend on the rows."
    )


def returned_labels(name: str, before: Field | None, /) -> Field:
    """What a category column becomes: the labels of an enum that went in, else text."""
    if before is not None and before.vocabulary is not None:
        return replace(carried_field(before), nullable=True)
    return Field(name, pa.string())


def returned_field(name: str, kind: pa.DataType, before: Field | None, /) -> Field:
    """What a frame's column becomes outside: by its type, and by what the column of that name was before.

    Every column may be NULL: a function can make NULL of anything, and a schema does not depend on values.

    Args:
        name: The column.
        kind: The Arrow type of its dtype.
        before: The field of that name that went in, if any.

    Raises:
        SchemaError: No frame may hold such a type.
    """
    made = carried(kind, column=name)
    if before is None:
        return Field(name, made)
    if kind == pa.timestamp("s") and pa.types.is_date(before.type):
        return replace(before, type=pa.date32(), nullable=True)
    if kind == pa.duration("us") and pa.types.is_time(before.type):
        return replace(before, type=pa.time64("us"), nullable=True)
    if made != carried(before.type, column=name) or before.vocabulary is not None:
        return Field(name, made)
    if isinstance(before.type, pa.FixedSizeListType):
        made = pa.list_(_inside(made).value_type, before.type.list_size)
    return replace(before, type=made, nullable=True)


def _inside(kind: pa.DataType) -> Any:
    """The type with its own attributes: the stubs know only DataType after `pa.types.is_…`."""
    return kind


def _chunked(chunks: list[Any], kind: Any) -> Any:
    return pa.chunked_array(chunks, type=kind)


def _decimal(kind: pa.DataType, column: str) -> pa.DataType:
    precision, scale = _inside(kind).precision, _inside(kind).scale
    if scale > _PRECISION:
        raise _refused(kind, column)
    return pa.decimal128(min(precision, _PRECISION), scale)


def _nested(kind: pa.DataType, column: str) -> pa.DataType:
    inside = _inside(kind)
    if pa.types.is_map(kind):
        pair = [("key", _element(inside.key_type, column)), ("value", _element(inside.item_type, column))]
        return pa.list_(pa.struct(pair))
    if pa.types.is_struct(kind):
        return pa.struct([(one.name, _element(one.type, column)) for one in inside])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_element(inside.value_type, column))
    raise _refused(kind, column)


def _element(kind: pa.DataType, column: str) -> pa.DataType:
    """What is carried inside lists and structs: no dictionaries there, since their codes would not be unified."""
    inner = carried(kind, column=column)
    return _inside(inner).value_type if pa.types.is_dictionary(inner) else inner


def _refused(kind: pa.DataType, column: str) -> SchemaError:
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        hint = f"""Read it as text, types={{"{column}": "hex"}}, or leave it out with columns=."""
    elif pa.types.is_null(kind):
        hint = f"""Say what it is, types={{"{column}": "string"}}, or cast it in the query."""
    else:
        hint = f"""Cast it in the query, for instance to text or a number, or read types={{"{column}": "string"}}."""
    return SchemaError(f"column {column}: a frame cannot hold {kind}", hint=hint, column=column)


def _carry_column(values: Any, field: Field) -> Any:
    column, source = field.name, values.type
    if pa.types.is_null(source):  # a batch whose reader saw no value: the schema knows the type
        return values.cast(carried(field.type, column=column))
    kind = carried(source, column=column)
    if field.vocabulary is not None and (pa.types.is_dictionary(source) or pa.types.is_string(kind)):
        return carry_vocabulary(values, field.vocabulary, column=column)
    if pa.types.is_dictionary(source):
        return _carry_dictionary(values, kind, column)
    if isinstance(source, pa.UuidType):
        return _text(_chunked([_uuid_text(one.storage) for one in values.chunks], pa.large_string()))
    if isinstance(source, pa.JsonType):
        return _text(_chunked([one.storage for one in values.chunks], source.storage_type))
    if pa.types.is_large_string(source) or pa.types.is_string_view(source):
        return _text(values)
    if pa.types.is_time(source):
        in_us = exact(values, pa.time64("us"), column=column)
        return in_us.cast(pa.int64()).cast(kind)
    if pa.types.is_decimal(source) or pa.types.is_timestamp(source) or not pa.types.is_nested(source):
        return exact(values, kind, column=column)
    return _carry_nested(values, kind, column)


def _on_vocabulary(values: Any, labels: pa.StringArray, column: str) -> Any:
    if isinstance(values, pa.DictionaryArray):  # labels are looked up once each, not once per row
        words = values.dictionary.cast(pa.string())
        places: Any = pc.index_in(words, value_set=labels)
        codes = values.indices if places.equals(_counted(len(labels))) else pc.take(places, values.indices)
        stray = pc.take(pc.and_(pc.is_null(places), pc.is_valid(words)), values.indices)
    else:
        words = values.cast(pa.string())
        codes = pc.index_in(words, value_set=labels)
        stray = pc.and_(pc.is_null(codes), pc.is_valid(words))
    if pc.any(stray).as_py():
        shown = pc.filter(values.cast(pa.string()), stray)[0].as_py()
        known = ", ".join(str(one) for one in labels[:12].to_pylist()) + (" …" if len(labels) > 12 else "")
        raise CastError(
            f"column {column} holds {shown!r}, which is none of its labels ({known})",
            hint=f"""Write frame["{column}"].astype("str") in the function, or keep to the labels.""",
            column=column,
        )
    return pa.DictionaryArray.from_arrays(codes.cast(pa.int32()), labels)


def _counted(stop: int) -> Any:
    return pa.array(np.arange(stop, dtype=np.int32))


def _text(values: pa.ChunkedArray[Any]) -> Any:
    """As string; where one chunk holds over 2^31 bytes it stays large, which frames of both engines take."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return values.cast(pa.large_string())


def _carry_dictionary(values: Any, kind: pa.DataType, column: str) -> Any:
    """One dictionary without NULL and without repeats; chunks of different dictionaries are unified by the caller."""
    words = _inside(kind).value_type
    chunks = []
    for one in values.chunks:
        codes, labels = one.indices, _carry_column(pa.chunked_array([one.dictionary]), Field(column, words))
        labels = labels.combine_chunks()
        if labels.null_count or len(pc.unique(labels)) != len(labels):
            encoded = pc.dictionary_encode(pc.take(labels, codes))
            codes, labels = encoded.indices, encoded.dictionary
        chunks.append(pa.DictionaryArray.from_arrays(exact(codes, pa.int32(), column=column), labels))
    return _chunked(chunks, kind)


def _carry_nested(values: pa.ChunkedArray[Any], kind: pa.DataType, column: str) -> Any:
    try:
        return exact(values, kind, column=column)
    except pa.ArrowNotImplementedError as error:
        raise SchemaError(
            f"column {column}: {values.type} cannot be carried as {kind}: {error}",
            hint="Cast it in the query, for instance to JSON text.",
            column=column,
        ) from error


_DIGITS: Final = np.frombuffer(b"0123456789abcdef", np.uint8)
_UUID_TEXT: Final = 36
_UUID_DASHES: Final = (8, 13, 18, 23)
_UUID_PLACES: Final = np.array([i for i in range(_UUID_TEXT) if i not in _UUID_DASHES])


def _uuid_text(values: pa.Array[Any]) -> Any:
    """fixed_size_binary(16) as the 36 characters of its text form; shape (n,), large_string."""
    n = len(values)
    raw = np.asarray(memoryview(values.buffers()[1] or b""), np.uint8)[values.offset * 16 :][: n * 16].reshape(n, 16)
    text = np.full((n, _UUID_TEXT), ord("-"), np.uint8)
    text[:, _UUID_PLACES[0::2]] = _DIGITS[raw >> 4]
    text[:, _UUID_PLACES[1::2]] = _DIGITS[raw & 15]
    ends = np.arange(n + 1, dtype=np.int64) * _UUID_TEXT
    whole: Any = pa.LargeStringArray.from_buffers(n, pa.py_buffer(ends.data), pa.py_buffer(text.reshape(-1).data))
    return pc.if_else(values.is_valid(), whole, pa.scalar(None, pa.large_string()))


def _kind_of(kind: pa.DataType) -> str:
    """Types of one kind may stand for one another where every value is exact."""
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return "number"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind):
        return "text"
    if pa.types.is_decimal(kind):
        return "decimal"
    if pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and getattr(kind, "tz", None) is None):
        return "moment"
    if pa.types.is_timestamp(kind):
        return "moment of a zone"
    if pa.types.is_duration(kind) or pa.types.is_time(kind):
        return "span"
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind) or pa.types.is_large_list(kind):
        return "list"
    return "struct" if pa.types.is_struct(kind) else str(kind)


def _time_of_day(values: pa.ChunkedArray[Any], field: Field) -> Any:
    in_us = exact(values, pa.duration("us"), column=field.name).cast(pa.int64())
    whole = in_us.drop_null().to_numpy()
    outside = whole[(whole < 0) | (whole >= _DAY_US)]
    if outside.size:
        raise CastError(
            f"column {field.name} is a time of day; the function gave {int(outside[0])} microseconds",
            hint="Give the result another name to keep it as a span.",
            column=field.name,
        )
    return exact(in_us.cast(pa.time64("us")), field.type, column=field.name)


def _narrowed(values: pa.ChunkedArray[Any], field: Field) -> Any:
    """Floats in another width. Arrow's cast would round and overflow without a word."""
    cast: Any = values.cast(field.type)
    back, plain = cast.cast(values.type).drop_null().to_numpy(), values.drop_null().to_numpy()
    lost = plain[~((back == plain) | (np.isnan(back) & np.isnan(plain)))]
    if lost.size:
        raise CastError(
            f"column {field.name} holds {float(lost[0])!r}, which {field.type} cannot hold exactly",
            hint=f"""Cast it in the function: frame["{field.name}"].astype("{str(field.type).title()}32").""",
            column=field.name,
        )
    return cast
