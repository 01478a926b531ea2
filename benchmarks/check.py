"""Is what a contender wrote what the database holds? Per column: values present, sum, smallest, largest."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import duckdb
import psycopg
from safetensors import safe_open

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

INTEGER, EXACT, FLOAT, MOMENT, TEXT, BOOL = "integer", "exact", "float", "moment", "text", "bool"
KINDS = {
    "int8": INTEGER, "int4": INTEGER, "numeric": EXACT, "float8": FLOAT, "float4": FLOAT, "date": MOMENT,
    "timestamptz": MOMENT, "bpchar": TEXT, "varchar": TEXT, "bool": BOOL,
}  # fmt: skip
TOLERANCE = {"float8": 1e-9, "float4": 1e-5}
"""Float sums depend on their order, so they are compared to this share."""


class Column(NamedTuple):
    """One column as the database holds it. Moments are microseconds UTC; a text's sum is its characters."""

    name: str
    source_type: str
    present: int
    sum: Decimal
    low: str | None
    high: str | None

    @property
    def kind(self) -> str:
        return KINDS[self.source_type]


def _select(name: str, kind: str, *, duck: bool) -> str:
    quoted = f'"{name}"'
    micros = f"epoch_us({quoted}::timestamptz)" if duck else f"(extract(epoch from {quoted}::timestamptz) * 1000000)"
    value = {MOMENT: micros, BOOL: f"{quoted}::int", TEXT: quoted}.get(kind, quoted)
    if kind == TEXT and not duck:
        value = f'{quoted}::text collate "C"'
    added = f"length({value})" if kind == TEXT else value
    wide = ("double" if duck else "float8") if kind == FLOAT else ("decimal(38,2)" if duck else "numeric")
    ends = f"min({value}), max({value})" if kind == TEXT else "null, null"
    if kind == MOMENT and duck:
        added = f"{added}::decimal(38,2)"
    return f"count({quoted}), sum(({added})::{wide})::{'varchar' if duck else 'text'}, {ends}"


def reference(url: str, table: str) -> tuple[int, list[Column]]:
    """Rows and columns as PostgreSQL counts them."""
    with psycopg.connect(url) as connection:
        connection.execute("set timezone to 'UTC'")
        types = connection.execute(
            "select a.attname, t.typname from pg_attribute a join pg_type t on t.oid = a.atttypid"
            " where attrelid = %s::regclass and attnum > 0 order by attnum",
            [table],
        ).fetchall()
        wanted = ", ".join(_select(name, KINDS[kind], duck=False) for name, kind in types)
        row = connection.execute(f"select count(*), {wanted} from {table}").fetchone()
    if row is None:
        raise AssertionError(table)
    return row[0], [
        Column(name, kind, row[1 + 4 * i], Decimal(row[2 + 4 * i] or 0), row[3 + 4 * i], row[4 + 4 * i])
        for i, (name, kind) in enumerate(types)
    ]


def _differs(column: Column, total: Decimal) -> bool:
    if column.kind == FLOAT:
        return not math.isclose(float(total), float(column.sum), rel_tol=TOLERANCE[column.source_type])
    return total != column.sum


def parquet(out: Path, rows: int, columns: list[Column]) -> list[str]:
    """What is wrong with a Parquet file or folder; empty when it is what the database holds."""
    place = f"{out}/*.parquet" if out.is_dir() else str(out)
    with duckdb.connect() as con:
        con.execute("set timezone to 'UTC'")
        described = con.execute(f"describe select * from read_parquet('{place}')").fetchall()
        types = {row[0]: str(row[1]) for row in described}
        missing = [column.name for column in columns if column.name not in types]
        if missing:
            return [f"no column {', '.join(missing)}"]
        wanted = ", ".join(_select(column.name, column.kind, duck=True) for column in columns)
        row = con.execute(f"select count(*), {wanted} from read_parquet('{place}')").fetchone()
    if row is None or row[0] != rows:
        return [f"{row and row[0]} rows, not {rows}"]
    wrong = []
    for i, column in enumerate(columns):
        present, total, low, high = row[1 + 4 * i : 5 + 4 * i]
        if present != column.present:
            wrong.append(f"{column.name}: {present} values, not {column.present}")
        elif _differs(column, Decimal(total or 0)) or (low, high) != (column.low, column.high):
            wrong.append(f"{column.name}: sum {total}, not {column.sum}")
        elif column.kind == EXACT and not types[column.name].startswith("DECIMAL"):
            wrong.append(f"{column.name}: {column.source_type} became {types[column.name]}")
    return wrong


def tensors(out: Path, rows: int, columns: list[Column]) -> list[str]:
    """What is wrong with a safetensors file or folder. Absent values hold 0, so sums need no mask."""
    files = sorted(out.glob("*.safetensors")) if out.is_dir() else [out]
    sums: dict[str, list[Decimal | float]] = {}
    counts: dict[str, int] = {}
    for path in files:
        with safe_open(path, framework="np") as file:
            for name in file.keys():  # noqa: SIM118 - not a mapping
                values = file.get_tensor(name)
                counts[name] = counts.get(name, 0) + len(values)
                sums.setdefault(name, []).append(_sum(values))
    wrong = []
    for column in columns:
        if column.kind == TEXT:
            continue
        if counts.get(column.name) != rows:
            wrong.append(f"{column.name}: {counts.get(column.name)} rows, not {rows}")
            continue
        whole = Decimal(sum(map(Decimal, sums[column.name])))
        valid = f"{column.name}.valid"
        if _differs(column, whole):
            wrong.append(f"{column.name}: sum {whole}, not {column.sum}")
        elif valid in sums and sum(map(Decimal, sums[valid])) != column.present:
            wrong.append(f"{column.name}: mask does not say {column.present} values")
    return wrong


def _sum(values: npt.NDArray[Any]) -> Decimal | float:
    if values.dtype.kind == "f":
        return float(values.astype("float64").sum())
    # In two halves: a sum of microseconds since 1970 passes 2^63 after some thousand rows.
    wide = values.astype("int64")
    return Decimal((int((wide >> 32).sum()) << 32) + int((wide & 0xFFFFFFFF).sum()))


def size(out: Path) -> int:
    """Bytes of a file, or of all files below a folder."""
    return sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) if out.is_dir() else out.stat().st_size


FORMATS = {"parquet": parquet, "safetensors": tensors}
