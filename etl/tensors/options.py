"""What the user wants written, checked before anything is read."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from etl.core.errors import ConfigError
from etl.core.schema import nearest
from etl.tensors.split import cumulative_bounds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.base import Cast, Special

Format: TypeAlias = Literal["safetensors", "parquet", "npy", "torch", "tfrecord"]
Layout: TypeAlias = Literal["columns", "packed"]
Order: TypeAlias = Literal["source", "key", "shuffle"]
NullKey: TypeAlias = Literal["error", "own_group"]

DTYPES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
)
"""The words of `--dtype`."""

_SPLIT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_]{0,63}")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The writing flags of `cuetl export`, as one value.

    Attributes:
        features: Columns of `x` in order; empty: every column is written on its own.
        target: Columns of `y`.
        weight: The column of `w`.
        key: Columns that name a row.
        layout: None: "packed" with features, else "columns".
        dtype: A word of `DTYPES` for `x` (packed) or for the float and decimal columns; None: by the schema.
        target_dtype: A word of `DTYPES` for `y`; None: the column's own.
        cast: What happens to values that the dtype cannot hold exactly.
        nulls: "mask", "error", "drop" or "fill=VALUE".
        column_nulls: Column → policy, where it differs from `nulls`.
        special: What was given as `--special`, for the manifest.
        order: Rows as the parts come, by `key`, or shuffled.
        seed: Of the shuffle; another seed gives another order.
        split: Split name → fraction as decimal text, in order; with `split_time` and no key: the end of the split's
            range, not in it, and of the last split an empty text. Empty: one split named "all".
        split_key: The columns whose hash decides the split.
        split_salt: Another salt gives another split.
        null_key: What a NULL in the split key does.
        allow_float: Whether float columns may be split keys.
        split_time: The time column: without `split_key` it decides the split, else `time_cut` is of it.
        time_cut: Beside a split by key: rows of the split "train" from this moment on are left out and counted.
        partition_bytes: Target size of a data file.
        row_group_rows, row_group_bytes: A Parquet row group ends at the first of both (bytes of Arrow data).
        pipeline: The pipeline's name, for the manifest.
        tags: Free text of the user, for the manifest.
        onnx: Whether the fit is saved as an ONNX model too.

    Raises:
        ConfigError: A word is unknown, fractions do not sum to 1, a split has no key, or flags of a split are given
            without one.
    """

    features: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    weight: str | None = None
    key: tuple[str, ...] = ()
    layout: Layout | None = None
    dtype: str | None = None
    target_dtype: str | None = None
    cast: Cast = "exact"
    nulls: str = "mask"
    column_nulls: Mapping[str, str] = field(default_factory=dict)
    special: Special | None = None
    order: Order = "source"
    seed: int | None = None
    split: Mapping[str, str] = field(default_factory=dict)
    split_key: tuple[str, ...] = ()
    split_salt: str = ""
    null_key: NullKey = "error"
    allow_float: bool = False
    split_time: str | None = None
    time_cut: str | None = None
    partition_bytes: int = 128 << 20
    row_group_rows: int = 1 << 20
    row_group_bytes: int = 64 << 20
    pipeline: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    onnx: bool = False

    def __post_init__(self) -> None:
        _word("layout", self.layout, ("columns", "packed"))
        _word("dtype", self.dtype, DTYPES)
        _word("target dtype", self.target_dtype, DTYPES)
        _word("cast", self.cast, ("exact", "round", "saturate"))
        for policy in (self.nulls, *self.column_nulls.values()):
            if not policy.startswith("fill="):
                _word("nulls", policy, ("mask", "error", "drop", "fill=VALUE"))
        for what, names in (
            ("--features", self.features),
            ("--target", self.target),
            ("--key", self.key),
            ("--split-key", self.split_key),
        ):
            double = next((n for n in names if names.count(n) > 1), None)
            if double is not None:
                raise ConfigError(f"{what} names column {double} twice", column=double)
        for name in self.target:
            if name in self.features:
                raise ConfigError(
                    f"column {name} is both a feature and the target", hint="Leave it out of --features.", column=name
                )
        if self.weight is not None and self.weight in (*self.features, *self.target):
            other = "feature" if self.weight in self.features else "target"
            raise ConfigError(
                f"column {self.weight} is the weight and also a {other}",
                hint="A column is one of them: give it a second name in the query.",
                column=self.weight,
            )
        if self.target_dtype is not None and not self.target:
            raise ConfigError("target_dtype was given without a target")
        if self.layout == "packed" and not self.features:
            raise ConfigError("--layout packed needs --features: the columns of x, in order")
        _word("order", self.order, ("source", "key", "shuffle"))
        if self.order == "key" and not self.key:
            raise ConfigError("--order key needs --key: the columns to sort by")
        if self.seed is not None and self.order != "shuffle":
            raise ConfigError(
                f"--shuffle {self.seed} and --order {self.order} were given together",
                hint="--shuffle SEED is --order shuffle with a seed.",
            )
        if self.seed is not None and self.seed < 0:
            raise ConfigError(f"--shuffle {self.seed} is negative", hint="A seed is a whole number from 0 on.")
        if self.partition_bytes < 1:
            raise ConfigError(f"--partition-bytes is {self.partition_bytes}; it must be at least 1")
        self._check_time()
        if self.split and not self.split_key and self.split_time is None:
            raise ConfigError("--split needs --split-key: the column whose hash decides on which side a row is")
        if self.split_key and not self.split:
            raise ConfigError("--split-key needs --split: names and fractions, such as train=0.8,val=0.2")
        if self.split_salt and not self.split_key:
            raise ConfigError("--split-salt needs --split: names and fractions, such as train=0.8,val=0.2")
        for name in self.split:
            if not _SPLIT_NAME.fullmatch(name) or name in {"all", "part"}:
                raise ConfigError(
                    f"{name!r} cannot be a split's name",
                    hint="Use up to 64 letters, digits and _, and not all or part.",
                )
        if self.split and self.split_key:
            cumulative_bounds(tuple(self.split.values()))

    def _check_time(self) -> None:
        if self.split_time is not None and not self.split:
            raise ConfigError("split_time needs split: names and the ends of their ranges")
        if self.split_time is not None and self.split_key and self.time_cut is None:
            raise ConfigError(
                "split_key and split_time were given together without time_cut",
                hint="Give one of them, or the moment from which on train rows are left out.",
            )
        if self.time_cut is not None and not (self.split_key and self.split_time is not None):
            raise ConfigError("time_cut needs split_key, which splits, and split_time, the column it is of")
        if self.time_cut is not None and "train" not in self.split:
            raise ConfigError("time_cut is of the split train, and there is none of that name")

    @property
    def splits(self) -> tuple[str, ...]:
        """Split names in order; ("all",) without a split."""
        return tuple(self.split) or ("all",)

    def nulls_of(self, column: str, /) -> str:
        """The null policy of one column."""
        return self.column_nulls.get(column, self.nulls)


def _word(what: str, value: str | None, known: tuple[str, ...]) -> None:
    if value is not None and value not in known:
        raise ConfigError(f"unknown {what} {value!r}", hint=nearest(value, known, what="choices"))
