"""The door to frames: an allow-list of Arrow types, held against what connectors give and what cuDF takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from connectors.base import Endpoint, Query
from connectors.registry import connector
from connectors.sqlite import arrow_type
from etl.core.errors import SchemaError
from etl.core.schema import Field, Schema
from etl.core.secrets import keep_inline
from etl.engine.backends.pandas import PandasBackend
from etl.engine.door import carried
from tests.door.kinds import KINDS, Kind
from tests.reading_postgresql import endpoint, nothing, source

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.servers.mariadb import MariaServer
    from tests.servers.postgresql import PostgresDatabase

CARRIED = tuple(dict.fromkeys(kind.carried for kind in KINDS if kind.carried is not None))
UTC = pa.timestamp("us", tz="UTC")


def outcome(kind: pa.DataType) -> pa.DataType | None:
    """As what a frame carries the type; None where it is refused."""
    try:
        return carried(kind, column="c")
    except SchemaError:
        return None


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.type))
def test_each_type_is_carried_as_the_list_says_or_refused(kind: Kind) -> None:
    assert outcome(kind.type) == kind.carried


def test_what_is_carried_is_carried_as_it_is() -> None:
    assert {str(kind): outcome(kind) for kind in CARRIED} == {str(kind): kind for kind in CARRIED}


@pytest.mark.parametrize("kind", [one for one in KINDS if one.carried is None], ids=lambda kind: str(kind.type))
def test_a_refusal_names_the_column_and_says_what_to_write(kind: Kind) -> None:
    with pytest.raises(SchemaError) as refused:
        carried(kind.type, column="payload")
    assert "payload" in str(refused.value)
    assert "types={" in str(refused.value)


# ---- what connectors give --------------------------------------------------------------------------------------------

POSTGRESQL: Mapping[str, pa.DataType | None] = {
    "bool": pa.bool_(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "oid": pa.uint32(),
    "xid8": pa.uint64(),
    "regclass": pa.string(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "numeric(9,2)": pa.decimal128(9, 2),
    "numeric(38,2)": pa.decimal128(38, 2),
    "numeric": pa.decimal128(38, 18),
    "numeric(50,4)": pa.decimal128(38, 4),
    "numeric(100,4)": pa.string(),
    "money": pa.decimal128(19, 2),
    "text": pa.string(),
    "varchar(5)": pa.string(),
    "char(5)": pa.string(),
    '"char"': pa.string(),
    "name": pa.string(),
    "bytea": None,
    "uuid": pa.string(),
    "date": pa.date32(),
    "time": pa.duration("us"),
    "timetz": pa.string(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": UTC,
    "interval": None,
    "json": pa.string(),
    "jsonb": pa.string(),
    "mood": pa.dictionary(pa.int32(), pa.string()),
    "int4[]": pa.list_(pa.int32()),
    "text[]": pa.list_(pa.string()),
    "uuid[]": pa.list_(pa.string()),
    "mood[]": pa.list_(pa.string()),
    "bytea[]": None,
    "time[]": pa.list_(pa.duration("us")),
    "inet": pa.string(),
    "cidr": pa.string(),
    "bit(3)": pa.string(),
    "point": pa.string(),
    "xml": pa.string(),
    "pair": pa.struct([("a", pa.int32()), ("t", pa.duration("us"))]),
    "int4range": pa.struct(
        [
            ("lower", pa.int32()),
            ("upper", pa.int32()),
            *((one, pa.bool_()) for one in ("lower_inc", "upper_inc", "empty")),
        ]
    ),
}
"""PostgreSQL's type → as what a frame carries it; None: refused, the column is named."""


@pytest.mark.server("postgresql")
def test_every_type_of_postgresql_meets_the_door(pgdb: PostgresDatabase) -> None:
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(POSTGRESQL))
    pgdb.sql(
        "create type mood as enum('sad','ok')", "create type pair as (a int, t time)", f"create table t({columns})"
    )
    one = source(endpoint(pgdb.url), Query(table="t"))
    with one.snapshot(attach_all=nothing) as at:
        schema = one.schema(at)
    assert dict(zip(POSTGRESQL, map(outcome, [field.type for field in schema]), strict=True)) == POSTGRESQL


MARIADB: Mapping[str, pa.DataType | None] = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "mediumint": pa.int32(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "tinyint unsigned": pa.uint8(),
    "int unsigned": pa.uint32(),
    "bigint unsigned": pa.uint64(),
    "bit(1)": pa.bool_(),
    "bit(9)": pa.uint64(),
    "decimal(9,2)": pa.decimal128(9, 2),
    "decimal(60,4)": pa.decimal128(38, 4),
    "float": pa.float32(),
    "double": pa.float64(),
    "varchar(9)": pa.string(),
    "text": pa.string(),
    "set('a','b')": pa.string(),
    "blob": None,
    "varbinary(9)": None,
    "enum('a','b')": pa.dictionary(pa.int32(), pa.string()),
    "json": pa.string(),
    "date": pa.date32(),
    "datetime(6)": pa.timestamp("us"),
    "timestamp(6)": UTC,
    "time(6)": pa.duration("us"),
    "year": pa.int16(),
}


@pytest.mark.server("mariadb")
def test_every_type_of_mariadb_meets_the_door(mariadb: MariaServer) -> None:
    columns = ", ".join(f"c{number} {kind} null" for number, kind in enumerate(MARIADB))
    mariadb.database("door")
    mariadb.sql(f"create table t({columns})", database="door")
    at = Endpoint("my", "mysql", mariadb.host, mariadb.port, "door", mariadb.user, keep_inline(mariadb.password))
    one = connector("mysql").source(at, Query(table="t"))
    with one.snapshot(attach_all=nothing) as moment:
        schema = one.schema(moment)
    mariadb.sql("drop database door")
    assert dict(zip(MARIADB, map(outcome, [field.type for field in schema]), strict=True)) == MARIADB


SQLITE: Mapping[str, pa.DataType | None] = {
    "INTEGER": pa.int64(),
    "BOOLEAN": pa.bool_(),
    "VARCHAR(9)": pa.string(),
    "BLOB": None,
    "REAL": pa.float64(),
    "DATE": pa.date32(),
    "DATETIME": pa.timestamp("us"),
    "TIME": pa.duration("us"),
    "DECIMAL(9,2)": pa.decimal128(9, 2),
    "DECIMAL(40,2)": pa.decimal128(38, 2),
    "DECIMAL(60,40)": None,
}


def test_every_declared_type_of_sqlite_meets_the_door() -> None:
    found = {declared: arrow_type(declared) for declared in SQLITE}
    assert {declared: kind and outcome(kind) for declared, kind in found.items()} == SQLITE


# ---- what cuDF takes -------------------------------------------------------------------------------------------------


def takes(check: Callable[[pa.DataType], object], kind: pa.DataType) -> bool:
    """Whether one of cuDF's checks takes a type and does not call it an object."""
    try:
        check(kind)
    except (TypeError, NotImplementedError):
        return False
    return True


def test_a_category_without_labels_has_the_dtype_of_one_with_labels() -> None:
    kind = pa.dictionary(pa.int32(), pa.string())
    for values in ([], [None], ["a"]):
        table = pa.table({"c": pa.array(values, kind)})
        frame = PandasBackend().from_arrow(table, Schema((Field("c", kind),)))
        assert str(frame["c"].cat.categories.dtype) == "str", values


@pytest.mark.gpuwheels
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.type))
def test_the_two_checks_of_cudf_say_what_the_list_was_made_from(kind: Kind) -> None:
    import tests.contract.ghosts  # noqa: F401 - imports cuDF without a device

    plc = pytest.importorskip("pylibcudf")
    types = pytest.importorskip("cudf.utils.dtypes")
    assert takes(types.cudf_dtype_from_pa_type, kind.type) == kind.python
    assert takes(plc.DataType.from_arrow, kind.type) == kind.library


@pytest.mark.gpuwheels
@pytest.mark.parametrize("kind", CARRIED, ids=str)
def test_cudf_takes_every_carried_type(kind: pa.DataType) -> None:
    from tests.contract.ghosts import cudf_dtype_from_pa_type, plc

    if pa.types.is_dictionary(kind):  # from_arrow takes codes and labels apart
        assert takes(plc.DataType.from_arrow, pa.int32())
        assert takes(cudf_dtype_from_pa_type, pa.string())
        return
    assert takes(cudf_dtype_from_pa_type, kind)
    assert str(cudf_dtype_from_pa_type(kind)) != "object"
    plain = pa.timestamp("us") if kind == UTC else kind  # the zone is put on afterwards
    assert takes(plc.DataType.from_arrow, plain)


@pytest.mark.gpuwheels
@pytest.mark.parametrize("kind", CARRIED, ids=str)
def test_the_dtype_in_cudf_is_that_of_the_pandas_frame(kind: pa.DataType) -> None:
    from tests.contract.ghosts import cudf, cudf_dtype, cudf_dtype_from_pa_type

    table = pa.table({"c": pa.array([None], kind)})
    frame = PandasBackend().from_arrow(table, Schema((Field("c", kind),)))
    mine = cudf_dtype(frame["c"].dtype)
    if pa.types.is_dictionary(kind):
        assert isinstance(mine, cudf.CategoricalDtype)
    else:
        assert mine == cudf_dtype_from_pa_type(kind)


@pytest.mark.gpuwheels
def test_the_codecs_that_cudf_writes() -> None:
    from tests.contract.ghosts import plc

    codecs = plc.io.types.CompressionType
    written = {
        name
        for name in ("NONE", "SNAPPY", "GZIP", "LZ4", "ZSTD", "BROTLI")
        if plc.io.parquet.is_supported_write_parquet(codecs[name])
    }
    assert written == {"NONE", "SNAPPY", "GZIP", "LZ4", "ZSTD"}


@pytest.mark.gpuwheels
def test_to_parquet_knows_the_keywords_of_a_part() -> None:
    import inspect

    from tests.contract.ghosts import cudf

    known = set(inspect.signature(cudf.DataFrame.to_parquet).parameters)
    assert {"compression", "index", "row_group_size_rows", "row_group_size_bytes", "max_page_size_rows"} <= known
    assert {"max_page_size_bytes", "store_schema", "row_group_size"} & known == {"max_page_size_bytes"}


@pytest.mark.gpuwheels
@pytest.mark.parametrize(
    ("left", "op", "right", "result"),
    [
        ((38, 10), "__mul__", (38, 10), (38, 6)),  # the scale shrinks without a word
        ((18, 2), "__div__", (18, 2), (38, 20)),
        ((18, 2), "__add__", (18, 2), (19, 2)),
        ((18, 2), "__mul__", (18, 2), (37, 4)),
    ],
)
def test_precision_and_scale_of_decimals_in_cudf(
    left: tuple[int, int], op: str, right: tuple[int, int], result: tuple[int, int]
) -> None:
    import tests.contract.ghosts  # noqa: F401 - imports cuDF without a device

    decimals = pytest.importorskip("cudf.core.column.decimal")
    cudf = pytest.importorskip("cudf")
    made = decimals._get_decimal_type(cudf.Decimal128Dtype(*left), cudf.Decimal128Dtype(*right), op)
    assert (made.precision, made.scale) == result
