"""Which column goes where, by the schema alone: roles, kinds, dtypes, tensors; and the rows that policies leave out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from etl.core.errors import ConfigError, SchemaError
from etl.core.schema import nearest
from etl.tensors.cast import parse_fill

if TYPE_CHECKING:
    from collections.abc import Mapping

    from etl.core.schema import Field, Schema
    from etl.tensors.options import Format, WriteOptions


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """One column of the dataset, as it will be in every file.

    Attributes:
        field: The source column.
        role: feature, target, weight, key, split_key, time or text.
        kind: continuous, integer, categorical, bool, timestamp, date, duration, decimal, embedding, ragged or text.
        dtype: The tensor's dtype; for Parquet the Arrow type in words.
        tensor: The tensor that holds it; "" for Parquet and text.
        index: Its place in a packed tensor.
        shape: Shape of one row in the tensor.
        nulls: mask, error, drop or fill=VALUE.
        cast: exact, round or saturate.
        scale: Digits after the point of a decimal stored as a scaled integer.
    """

    field: Field
    role: str
    kind: str
    dtype: str
    tensor: str = ""
    index: int | None = None
    shape: tuple[int, ...] = ()
    nulls: str = "mask"
    cast: str = "exact"
    scale: int | None = None

    @property
    def nullable(self) -> bool:
        """Whether a NULL can be in the written column."""
        return self.field.nullable and self.nulls == "mask"


@dataclass(frozen=True, slots=True)
class PackPlan:
    """The columns that are written, in order; what is left out is named.

    Attributes:
        columns: Written columns.
        layout: "packed", "columns" or "table" (Parquet).
        features: Feature names in order.
        left_out: Columns of the source that are not written.
        warnings: Sentences for the report.
    """

    columns: tuple[ColumnPlan, ...]
    layout: str
    features: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    warnings: tuple[Mapping[str, object], ...] = field(default_factory=tuple)


def kind_of(kind: Any, /) -> str:
    """The manifest's word for an Arrow type."""
    types = pa.types
    tests = (
        ("bool", types.is_boolean),
        ("integer", types.is_integer),
        ("continuous", types.is_floating),
        ("decimal", types.is_decimal),
        ("timestamp", types.is_timestamp),
        ("date", types.is_date),
        ("duration", lambda t: types.is_duration(t) or types.is_time(t)),
        ("categorical", types.is_dictionary),
        ("embedding", types.is_fixed_size_list),
        ("ragged", lambda t: types.is_list(t) or types.is_large_list(t)),
    )
    return next((word for word, holds in tests if holds(kind)), "text")


def check_names(schema: Schema, options: WriteOptions, /) -> None:
    """Hold that every column named in the options exists.

    Raises:
        ConfigError: One does not; the flag and the nearest columns are named.
    """
    weight = (options.weight,) if options.weight is not None else ()
    for flag, names in (
        ("--features", options.features),
        ("--target", options.target),
        ("--weight", weight),
        ("--key", options.key),
        ("--split-key", options.split_key),
        ("split_time", (options.split_time,) if options.split_time is not None else ()),
        ("--nulls", tuple(options.column_nulls)),
    ):
        for name in names:
            if name not in schema.names:
                raise ConfigError(f"{flag}: no column {name}", hint=nearest(name, schema.names), column=name)


def table_plan(schema: Schema, options: WriteOptions, /) -> PackPlan:
    """The plan of a Parquet dataset: every column in its own type; roles are recorded.

    Raises:
        ConfigError: An option that only tensors have.
    """
    for flag, given in (
        ("--layout", options.layout),
        ("--dtype", options.dtype),
        ("target_dtype", options.target_dtype),
    ):
        if given is not None:
            raise ConfigError(f"{flag} is for tensors", hint="Leave it out, or use --format safetensors.")
    for name, policy in (("", options.nulls), *options.column_nulls.items()):
        if policy.startswith("fill="):
            raise ConfigError(
                f"--nulls {policy}{' of column ' + name if name else ''} is for tensors: Parquet keeps NULL as NULL",
                hint="Leave it out, or use --format safetensors.",
            )
    columns = tuple(
        ColumnPlan(
            one,
            role_of(one.name, options),
            kind_of(one.type),
            str(one.type),
            nulls=options.nulls_of(one.name),
            cast=options.cast,
        )
        for one in schema
    )
    return PackPlan(columns, "table", options.features or schema.names)


def role_of(name: str, options: WriteOptions, /) -> str:
    """The role that the options give a column."""
    if name in options.features:
        return "feature"
    if name in options.target:
        return "target"
    if name == options.weight:
        return "weight"
    if name in options.key:
        return "key"
    if name in options.split_key:
        return "split_key"
    if name == options.split_time:
        return "time"
    return "feature"


def plan_columns(schema: Schema, options: WriteOptions, format_: Format, /) -> PackPlan:
    """Which column goes where; a function of schema and options alone.

    Raises:
        ConfigError: A column does not exist, or cannot be what it is asked to be.
    """
    if not len(schema):
        raise SchemaError("the result has no columns", hint="Select at least one.")
    check_names(schema, options)
    if format_ == "parquet":
        return table_plan(schema, options)
    return tensor_plan(schema, options)


ITEM_BYTES = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "uint32": 4,
    "float32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
}
RESERVED = "__metadata__"
_WAYS_OUT = "Encode it as a number in the query, leave it out of --features, or keep it as text beside the tensors."


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor of every file.

    Attributes:
        name: As in the file.
        dtype: In words; "bfloat16" is held as uint16 bits.
        row_shape: Shape of one row; () for a vector.
        columns: Its columns in order: one, or those of a packed matrix.
        part: "values", "valid", "lengths" or "items" (the values of a ragged list, as many as there are).
    """

    name: str
    dtype: str
    row_shape: tuple[int, ...]
    columns: tuple[ColumnPlan, ...]
    part: str

    @property
    def row_bytes(self) -> int:
        """Bytes of one row (of one item for "items")."""
        size = ITEM_BYTES[self.dtype]
        for extent in self.row_shape:
            size *= extent
        return size


def tensor_specs(plan: PackPlan, /) -> tuple[TensorSpec, ...]:
    """The tensors of a plan in file order.

    Item size descending, items of ragged lists last in theirs, then x, y, w, their masks, the others by name: so that
    every tensor is aligned to its item, and every file of a version has the same order.
    """
    groups: dict[tuple[str, str], list[ColumnPlan]] = {}
    for column in plan.columns:
        if column.tensor:
            # Only a matrix has several columns: two columns with one tensor's name else are a collision, found below.
            member = "" if column.index is not None else column.field.name
            groups.setdefault((column.tensor, member), []).append(column)
    specs: list[TensorSpec] = []
    for (name, _), members in groups.items():
        first = members[0]
        if len(members) > 1 and first.index is None:
            raise ConfigError(
                f"two tensors would be named {name}: column {first.field.name} as {members[0].role} and as "
                f"{members[1].role}",
                hint="Give the column an alias in the query.",
                column=first.field.name,
            )
        columns = tuple(members)
        matrix = (len(members),) if first.index is not None else ()
        nullable = any(c.nullable for c in members)
        if first.kind == "ragged":
            specs.append(TensorSpec(f"{name}.lengths", "int32", (), columns, "lengths"))
            specs.append(TensorSpec(f"{name}.values", first.dtype, (), columns, "items"))
        else:
            specs.append(TensorSpec(name, first.dtype, matrix or first.shape, columns, "values"))
        if nullable:
            specs.append(TensorSpec(f"{name}.valid", "bool", matrix, columns, "valid"))
    seen: dict[str, TensorSpec] = {}
    for spec in specs:
        if spec.name == RESERVED:
            raise ConfigError(
                f"no tensor can be named {RESERVED}: in a safetensors file the header goes by this name",
                hint="Give the column an alias in the query, or write Parquet.",
                column=spec.name,
            )
        # Readers are given the places where lists begin, which are in no file.
        offered = (f"{spec.name.removesuffix('.values')}.offsets",) if spec.part == "items" else ()
        for name in (spec.name, *offered):
            if name in seen:
                raise ConfigError(
                    f"two tensors would be named {name} (columns {seen[name].columns[0].field.name} and "
                    f"{spec.columns[0].field.name})",
                    hint="Give one column an alias in the query.",
                )
            seen[name] = spec
    fixed = ("x", "y", "w", "x.valid", "y.valid", "w.valid") if plan.layout == "packed" else ()

    def place(spec: TensorSpec) -> tuple[int, bool, int, bytes]:
        rank = fixed.index(spec.name) if spec.name in fixed else len(fixed)
        return -ITEM_BYTES[spec.dtype], spec.part == "items", rank, spec.name.encode()

    return tuple(sorted(specs, key=place))


def layout_of(options: WriteOptions, /) -> str:
    """The layout asked for, or what follows from the features."""
    return options.layout or ("packed" if options.features else "columns")


def tensor_plan(schema: Schema, options: WriteOptions, /) -> PackPlan:
    """The plan of a tensor dataset.

    Raises:
        ConfigError: A column cannot be a tensor, or a feature; names would collide.
    """
    layout = layout_of(options)
    wanted = schema.names
    if options.features:
        weight = (options.weight,) if options.weight is not None else ()
        # In the order x, y, w, keys; a column may be feature and key at once.
        wanted = tuple(dict.fromkeys((*options.features, *options.target, *weight, *options.key)))
    if "" in wanted:
        raise ConfigError(
            f"column {wanted.index('') + 1} has no name, and a tensor needs one",
            hint="Give it an alias in the query, or write Parquet.",
        )
    for name in options.column_nulls:
        if name not in wanted:
            raise ConfigError(
                f"--nulls {options.column_nulls[name]} of column {name}: it is not written",
                hint="Make it a feature, target, weight or key, or leave such rows out in the query.",
                column=name,
            )
    for name in options.features:
        _check_feature(schema.field(name))
    matrix = matrix_dtype(schema, options) if layout == "packed" else ""
    columns: list[ColumnPlan] = []
    warnings: list[Mapping[str, object]] = []
    index = 0
    for name in wanted:
        one = schema.field(name)
        role = role_of(name, options)
        if layout == "packed" and role == "feature" and kind_of(one.type) not in {"embedding", "ragged"}:
            columns.append(_planned(one, role, options, matrix, "x", index))
            index += 1
        elif layout == "packed" and role in {"target", "weight"}:
            _check_number(one, role)
            dtype = _own_dtype(one, options, as_target=True)
            if role == "target" and options.target_dtype is not None:
                dtype = options.target_dtype
            place = options.target.index(name) if role == "target" and len(options.target) > 1 else None
            columns.append(_planned(one, role, options, dtype, "y" if role == "target" else "w", place))
        elif is_text(one.type):
            kept = role if role == "key" else "text"
            columns.append(ColumnPlan(one, kept, "text", str(one.type), nulls=_text_nulls(one, options)))
            warnings.append(
                {
                    "code": "text",
                    "column": name,
                    "text": f"column {name} ({one.source_type or one.type}) is not a tensor: it is kept as text in "
                    "_text, row by row beside the tensors",
                }
            )
        else:
            columns.append(_column_plan(one, role, options))
        if layout == "packed" and role in {"feature", "target", "weight"} and name in options.key:
            columns.append(_column_plan(one, "key", options))
    _one_dtype(columns, "y")
    plan = PackPlan(
        tuple(columns),
        layout,
        options.features or tuple(c.field.name for c in columns if c.role == "feature"),
        tuple(n for n in schema.names if n not in wanted),
        tuple(warnings),
    )
    tensor_specs(plan)
    return plan


def _one_dtype(columns: list[ColumnPlan], tensor: str) -> None:
    """Several targets are one matrix: the widest of their dtypes, if one holds all."""
    members = [c for c in columns if c.tensor == tensor and c.index is not None]
    if len({c.dtype for c in members}) > 1:
        found = ", ".join(f"{c.field.name} {c.dtype}" for c in members)
        raise ConfigError(
            f"the targets have different dtypes ({found}) and cannot be one matrix", hint="Set target_dtype."
        )


def _planned(one: Field, role: str, options: WriteOptions, dtype: str, tensor: str, index: int | None) -> ColumnPlan:
    nulls = options.nulls_of(one.name)
    _check_decimal(one, dtype)
    check_fill(one, nulls, dtype)
    return ColumnPlan(one, role, kind_of(one.type), dtype, tensor, index, (), nulls, options.cast)


def _column_plan(one: Field, role: str, options: WriteOptions) -> ColumnPlan:
    """A column as a tensor of its own."""
    kind: Any = one.type
    nulls = options.nulls_of(one.name)
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        if not _is_number(kind.value_type):
            raise ConfigError(
                f"column {one.name} ({one.source_type or kind}) cannot be a tensor: its items are {kind.value_type}",
                hint="Leave it out, or write Parquet.",
                column=one.name,
            )
        if nulls.startswith("fill="):
            raise ConfigError(f"column {one.name} is a list: --nulls {nulls} cannot fill it", column=one.name)
        item = native_dtype(kind.value_type)
        if pa.types.is_fixed_size_list(kind):
            shape = (kind.list_size,)
            return ColumnPlan(one, role, "embedding", item, one.name, None, shape, nulls, options.cast)
        return ColumnPlan(one, role, "ragged", item, one.name, None, (), nulls, options.cast)
    if not _is_number(kind):
        raise ConfigError(
            f"column {one.name} is {one.source_type or kind}, which cannot be a tensor",
            hint="Leave it out, read it as text (--types), or write Parquet.",
            column=one.name,
        )
    dtype = _own_dtype(one, options, as_target=role in {"target", "weight"})
    if role == "target" and options.target_dtype is not None:
        dtype = options.target_dtype
        _check_decimal(one, dtype)
    scale = kind.scale if pa.types.is_decimal(kind) and dtype == "int64" else None
    check_fill(one, nulls, dtype, scale)
    return ColumnPlan(one, role, kind_of(kind), dtype, one.name, None, (), nulls, options.cast, scale)


def _check_decimal(one: Field, dtype: str) -> None:
    if pa.types.is_decimal(one.type) and not dtype.startswith(("float", "bfloat")):
        raise ConfigError(
            f"column {one.name} is {one.type} and cannot be {dtype}",
            hint="Use a float dtype, or cast it in the query.",
            column=one.name,
        )


def _own_dtype(one: Field, options: WriteOptions, *, as_target: bool) -> str:
    kind: Any = one.type
    if pa.types.is_decimal(kind):
        if as_target:
            return "float64"
        if options.dtype is not None and layout_of(options) == "columns":
            _check_decimal(one, options.dtype)
            return options.dtype
        return native_dtype(kind)
    if pa.types.is_floating(kind) and not as_target and layout_of(options) == "columns":
        return options.dtype or native_dtype(kind)
    return native_dtype(kind)


def native_dtype(kind: Any, /) -> str:
    """The dtype of a column of that type when it is a tensor of its own."""
    types = pa.types
    if types.is_dictionary(kind):
        return "int32"
    if types.is_boolean(kind):
        return "bool"
    if types.is_integer(kind):
        return {"uint16": "int32", "uint32": "int64"}.get(str(kind), str(kind))
    if types.is_floating(kind):
        return f"float{kind.bit_width}"
    if types.is_date(kind):
        return "int32"
    if types.is_decimal(kind):
        return "int64" if kind.precision <= 18 and kind.scale >= 0 else "float64"
    return "int64"


def matrix_dtype(schema: Schema, options: WriteOptions, /) -> str:
    """The dtype of x, from the declared types alone: exact for every feature unless `--dtype` says otherwise.

    Raises:
        ConfigError: An unsigned 64-bit column beside a signed one: no integer holds both.
    """
    if options.dtype is not None:
        return options.dtype
    features = [
        schema.field(n) for n in options.features if kind_of(schema.field(n).type) not in {"embedding", "ragged"}
    ]
    kinds: list[Any] = [f.type for f in features]
    types = pa.types
    if any(types.is_floating(k) or types.is_decimal(k) for k in kinds):
        return "float64" if any(_needs_float64(k) for k in kinds) else "float32"
    integers = [(f, k) for f, k in zip(features, kinds, strict=True) if not types.is_boolean(k)]
    if not integers:
        return "bool"
    unsigned = [(f, k) for f, k in integers if types.is_unsigned_integer(k)]
    if len(unsigned) == len(integers):
        return f"uint{max(k.bit_width for _, k in unsigned)}"
    huge = [f for f, k in unsigned if k.bit_width == 64]
    if huge:
        signed = next(f for f, k in integers if not types.is_unsigned_integer(k))
        raise ConfigError(
            f"features {huge[0].name} (unsigned, 64 bits) and {signed.name} (signed) fit no integer dtype together",
            hint="Use --dtype float64 with --cast round, or leave one out.",
        )
    bits = [k.bit_width * 2 if types.is_unsigned_integer(k) else _signed_bits(k) for _, k in integers]
    return f"int{max(bits)}"


def _signed_bits(kind: Any) -> int:
    if pa.types.is_dictionary(kind) or pa.types.is_date(kind):
        return 32
    if pa.types.is_integer(kind):
        return int(kind.bit_width)
    return 64


def _needs_float64(kind: Any) -> bool:
    types = pa.types
    if types.is_boolean(kind) or types.is_dictionary(kind):
        return False
    if types.is_decimal(kind):
        return bool(kind.precision > 6)
    if types.is_floating(kind):
        return bool(kind.bit_width == 64)
    return not (types.is_integer(kind) and kind.bit_width <= 16)


def _is_number(kind: Any) -> bool:
    return kind_of(kind) in {
        "bool", "integer", "continuous", "decimal", "timestamp", "date", "duration", "categorical",
    }  # fmt: skip


def is_text(kind: Any, /) -> bool:
    """Whether a column is kept as text beside the tensors: text, bytes, uuid."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return (
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
    )


def is_float(column: ColumnPlan, /) -> bool:
    """Whether a planned column is written as floats."""
    return column.dtype.startswith(("float", "bfloat"))


def _text_nulls(one: Field, options: WriteOptions) -> str:
    nulls = options.nulls_of(one.name)
    if not nulls.startswith("fill="):
        return nulls
    if one.name in options.column_nulls:
        raise ConfigError(f"column {one.name} is kept as text: --nulls {nulls} cannot fill it", column=one.name)
    return "mask"


def _check_feature(one: Field) -> None:
    kind = kind_of(one.type)
    if is_text(one.type) or not (_is_number(one.type) or kind in {"embedding", "ragged"}):
        raise ConfigError(
            f"column {one.name} among --features is {one.source_type or one.type} ({one.type}), not a number",
            hint=_WAYS_OUT,
            column=one.name,
        )


def _check_number(one: Field, role: str) -> None:
    if not _is_number(one.type):
        raise ConfigError(
            f"column {one.name} as {role} is {one.source_type or one.type} ({one.type}), not a number",
            hint="Encode it as a number in the query.",
            column=one.name,
        )


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, ValueError) else "not a number"


def check_fill(one: Field, nulls: str, dtype: str, scale: int | None = None, /) -> None:
    """Hold that the value of `fill=` is one of the dtype.

    Raises:
        ConfigError: It is not; the column is named.
    """
    if nulls.startswith("fill="):
        try:
            parse_fill(nulls.removeprefix("fill="), dtype, scale)
        except (ValueError, ArithmeticError) as error:
            raise ConfigError(
                f"--nulls {nulls} of column {one.name}: {_said(error)}",
                hint=f"Give a value that {dtype} holds exactly.",
                column=one.name,
            ) from error
