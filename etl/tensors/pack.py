"""Which column goes where, by the schema alone: roles, kinds, dtypes, tensors; and the rows that policies leave out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from etl.core.errors import ConfigError, SchemaError
from etl.core.schema import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from etl.core.schema import Field, Schema
    from etl.tensors.options import Format, WriteOptions


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """One column of the dataset, as it will be in every file.

    Attributes:
        field: The source column.
        role: feature, target, weight, key, split_key or text.
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
    raise ConfigError(f"unknown format {format_!r}", hint=nearest(format_, ("safetensors", "parquet"), what="formats"))
