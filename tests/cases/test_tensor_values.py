"""Cases of values on their way into tensors: integers beside NULL, casts, booleans, text, times, decimals."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as arrow  # noqa: ICN001 - `pa` is its untyped door, below
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from etl.core.errors import CastError, ConfigError
from etl.tensors.dataset import Dataset, open_dataset
from etl.tensors.options import WriteOptions
from tests.cases.exporting import Exports
from tests.datasets import export

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.mariadb import MariaServer
    from tests.servers.postgresql import PostgresDatabase

pa: Any = arrow  # the stubs do not know NumPy arrays and short lists as columns

BIG = 2**53 + 1
ODD = 2**24 + 1


@pytest.fixture
def exports(pgdb: PostgresDatabase, tmp_path: Path) -> Exports:
    return Exports(tmp_path, pgdb.url)


def written(out: Path, table: Any, parts: int = 1, batch_rows: int = 1000, **options: Any) -> dict[str, Any]:
    """The tensors of a table, over all its files."""
    export(out, table, parts, fmt="safetensors", options=WriteOptions(**options), batch_rows=batch_rows)
    return dict(open_dataset(out, verify="sha256").tensors())


def column(dataset: Dataset, name: str) -> Any:
    return next(c for c in dataset.columns if c["name"] == name)


def refused(out: Path, table: Any, **options: Any) -> str:
    with pytest.raises((CastError, ConfigError)) as error:
        written(out, table, **options)
    assert not out.exists()
    return str(error.value)


def same(found: Any, values: list[Any], dtype: str) -> None:
    assert found.dtype.name == dtype
    assert found.tolist() == values


@pytest.mark.server("postgresql")
def test_t_01_integers_beyond_float64_do_not_depend_on_the_cut(pgdb: PostgresDatabase, exports: Exports) -> None:
    pgdb.sql(
        "create table t01(pk int primary key, big bigint)",
        f"insert into t01 select g, case when g = 15000 then null else {BIG} end from generate_series(1, 20000) g",
    )
    seen = set()
    for parts in ("1", "2", "7"):
        exports.done(
            *("--table", "t01", "--key", "pk", "--order", "key", "--partition-column", "pk", "--partitions", parts),
            to=parts,
        )
        found = open_dataset(exports.home / parts, verify="sha256").tensors()
        assert found["big"].dtype == np.int64
        assert (np.delete(found["big"], 14999) == BIG).all()
        assert found["big"][14999] == 0
        assert np.flatnonzero(~found["big.valid"]).tolist() == [14999]
        seen.add(b"".join(found[name].tobytes() for name in sorted(found)))
    assert len(seen) == 1


@pytest.mark.parametrize("batch_rows", [1, 1000, 10_000, 100_000])
def test_t_01_nor_on_the_batches(tmp_path: Path, batch_rows: int) -> None:
    rows = 20_000 if batch_rows > 1 else 2_000
    table = pa.table({"big": pa.array([None if i == 1500 else BIG for i in range(rows)], pa.int64())})
    first = written(tmp_path / "a", table)
    for parts in (1, 2, 7):
        again = written(tmp_path / f"p{parts}", table, parts, batch_rows)
        assert all(first[n].tobytes() == again[n].tobytes() for n in first)


def test_t_02_and_07_the_schema_decides_whichever_value_comes_first(tmp_path: Path) -> None:
    columns: dict[str, list[Any]] = {
        "a": [BIG, None], "b": [None, 1, 2], "c": [1, None], "d": [1, 2], "e": [None, None], "f": [],
    }  # fmt: skip
    for name, values in columns.items():
        table = pa.table({"v": pa.array(values, pa.int64())})
        found = written(tmp_path / name, table)
        same(found["v"], [v or 0 for v in values], "int64")
        same(found["v.valid"], [v is not None for v in values], "bool")
        assert type(found["v"]) is np.ndarray
        split = open_dataset(tmp_path / name).split("all")
        for rows in (slice(0, 1), slice(1, 2), slice(0, 0)):
            assert found["v"][rows].dtype == np.int64
        assert sorted(split.tensors()) == ["v", "v.valid"]


def test_t_03_four_kinds_of_numbers_with_nulls_beside_each_other(tmp_path: Path) -> None:
    kinds = {"i": pa.int64(), "f": pa.float32(), "d": pa.float64(), "b": pa.bool_()}
    table = pa.table(
        {n: pa.array([1, None, 0], k) if n != "b" else pa.array([True, None, False]) for n, k in kinds.items()}
    )
    found = written(tmp_path / "out", table)
    for name, dtype in {"i": "int64", "f": "float32", "d": "float64", "b": "bool"}.items():
        same(found[name], [1, 0, 0], dtype)
        same(found[f"{name}.valid"], [True, False, True], "bool")


def test_t_04_text_stays_beside_the_numbers_with_its_null(tmp_path: Path) -> None:
    table = pa.table({"n": pa.array([1, 2, None], pa.int32()), "t": pa.array(["a", None, ""])})
    found = written(tmp_path / "out", table)
    same(found["n"], [1, 2, 0], "int32")
    same(found["n.valid"], [True, True, False], "bool")
    dataset = open_dataset(tmp_path / "out")
    (file,) = dataset.manifest.files
    assert file.text_file is not None
    assert pq.read_table(tmp_path / "out" / file.text_file.path).column("t").to_pylist() == ["a", None, ""]
    assert [w["column"] for w in dataset.manifest.document["warnings"]] == ["t"]  # type: ignore[attr-defined]


@pytest.mark.server("postgresql")
def test_t_05_an_integer_beyond_float32(pgdb: PostgresDatabase, exports: Exports) -> None:
    pgdb.sql("create table t05(n integer)", f"insert into t05 values ({ODD}), (null)")
    ask = ("--table", "t05", "--features", "n")
    said = exports.refused(*ask, "--dtype", "float32")
    assert all(word in said for word in ("column n", "16777217", "float32", "--cast round"))
    found = exports.tensors(*ask, "--dtype", "float32", "--cast", "round", to="r")
    same(found["x"], [[16777216.0], [0.0]], "float32")
    same(found["x.valid"], [[True], [False]], "bool")
    assert column(open_dataset(exports.home / "r"), "n")["cast"] == {
        "policy": "round", "n_rounded": 1, "n_saturated": 0, "max_abs_error": 1.0,
    }  # fmt: skip
    same(exports.tensors(*ask, to="own")["x"], [[ODD], [0]], "int32")


@pytest.mark.parametrize("layout", ["columns", "packed"])
@pytest.mark.parametrize("fmt", ["safetensors", "parquet"])
def test_t_06_parts_of_nulls_and_empty_parts(tmp_path: Path, layout: str, fmt: Any) -> None:
    rows = 40
    tables: dict[str, list[Any]] = {
        "late": [None if 20 <= i < 30 else i for i in range(rows)],
        "first": [None if i < 10 else i for i in range(rows)],
        "all": [None] * rows,
        "none": [],
    }
    options: dict[str, Any] = {"features": ("v", "w"), "layout": layout} if fmt == "safetensors" else {}
    dtypes = set()
    for name, values in tables.items():
        ids = pa.array(range(len(values)), pa.int64())
        table = pa.table({"v": pa.array(values, pa.int32()), "w": pa.array(values, pa.int8()), "k": ids})
        out = tmp_path / name
        export(out, table, 4, fmt=fmt, options=WriteOptions(**options))
        dataset = open_dataset(out, verify="sha256")
        assert len(dataset) == len(values)
        if fmt == "parquet":
            dtypes.add(tuple(str(t) for t in pq.read_table(out).schema.types))
            continue
        for file in dataset.manifest.files:
            found = load_file(out / file.path)
            dtypes.add(tuple(sorted(f"{n} {a.dtype.name} {a.shape[1:]}" for n, a in found.items())))
    assert len(dtypes) == 1


@pytest.mark.parametrize("policy", ["exact", "round", "saturate"])
def test_t_08_and_18_nan_is_no_integer_and_no_bool(tmp_path: Path, policy: Any) -> None:
    table = pa.table({"id": pa.array([7, 8], pa.int64()), "f": pa.array([1.0, float("nan")])})
    for dtype in ("int64", "int8", "uint64", "bool"):
        said = refused(tmp_path / "out", table, features=("f",), dtype=dtype, cast=policy, key=("id",))
        assert "column f" in said
        assert "id = 8" in said
        assert dtype in said


def test_t_08_a_missing_time_is_null(tmp_path: Path) -> None:
    times = np.array(["2024-01-01", "NaT"], "datetime64[us]")
    found = written(tmp_path / "out", pa.table({"at": pa.array(times)}))
    same(found["at"], [1704067200000000, 0], "int64")
    same(found["at.valid"], [True, False], "bool")


def test_t_09_unsigned_integers_keep_their_top_bit(tmp_path: Path) -> None:
    table = pa.table({"u": pa.array([2**63, 2**64 - 1], pa.uint64()), "s": pa.array([-1, 1], pa.int64())})
    same(written(tmp_path / "out", table)["u"], [2**63, 2**64 - 1], "uint64")
    said = refused(tmp_path / "no", table, features=("u", "s"))
    assert "u " in said
    assert "s " in said
    alone = written(tmp_path / "alone", table, features=("u",))
    same(alone["x"], [[2**63], [2**64 - 1]], "uint64")
    said = refused(tmp_path / "no", table, features=("u",), dtype="int64")
    assert "9223372036854775808" in said


@pytest.mark.slow
@pytest.mark.server("mariadb")
def test_t_09_and_22_unsigned_integers_and_times_of_mariadb(mariadb: MariaServer, tmp_path: Path) -> None:
    url = mariadb.database("tensors")
    mariadb.sql(
        "create table t(id int primary key, u bigint unsigned, s bigint, d time(6))",
        "insert into t values (1, 9223372036854775808, -1, '00:00:05'), (2, 1, 1, null)",
        database="tensors",
    )
    exports = Exports(tmp_path, url)
    found = exports.tensors("--table", "t")
    order = np.argsort(found["id"])
    same(found["u"][order], [2**63, 1], "uint64")
    same(found["d"][order], [5_000_000, 0], "int64")
    same(found["d.valid"][order], [True, False], "bool")
    assert column(open_dataset(tmp_path / "out"), "d")["time"]["unit"] == "us"
    said = exports.refused("--table", "t", "--features", "u,s", code=2, to="no")
    assert "u " in said
    assert "s " in said


@pytest.mark.server("postgresql")
def test_t_10_no_rows_have_every_tensor(exports: Exports) -> None:
    text = "select 1::bigint a, 1::float8 f, true b, 'x' t, now() at, 1.5::numeric(5,2) d, '{1}'::int[] g where false"
    found = exports.tensors("--sql", text)
    dtypes = {
        "a": "int64",
        "f": "float64",
        "b": "bool",
        "at": "int64",
        "d": "int64",
        "g.lengths": "int32",
        "g.values": "int32",
    }
    assert {n: found[n].dtype.name for n in dtypes} == dtypes
    assert all(a.shape == (0,) for a in found.values())
    packed = exports.tensors("--sql", text, "--features", "a,f,b", "--target", "d", to="packed")
    assert (packed["x"].shape, packed["x"].dtype.name, packed["y"].shape) == ((0, 3), "float64", (0,))
    table = exports.table("--sql", text, to="p")
    assert table.num_rows == 0
    assert open_dataset(exports.home / "p").manifest.rows == 0


@pytest.mark.server("postgresql")
def test_t_14_a_key_that_is_null_in_every_row(pgdb: PostgresDatabase, exports: Exports) -> None:
    pgdb.sql("create table t14(k int, v int)", "insert into t14 select null, g from generate_series(1, 5) g")
    exports.done("--table", "t14", "--partition-column", "k", "--partitions", "4")
    dataset = open_dataset(exports.home / "out")
    assert len(dataset) == 5
    parts: Any = dataset.manifest.document["partitions"]
    assert sum(p["includes_null"] for p in parts) == 1
    assert sorted(dataset.tensors()["v"].tolist()) == [1, 2, 3, 4, 5]


@pytest.mark.server("postgresql")
def test_t_15_and_23_what_a_narrow_float_cannot_hold(pgdb: PostgresDatabase, exports: Exports) -> None:
    pgdb.sql(
        "create table t15(id int primary key, near float8, far float8, at bigint, nano bigint)",
        "insert into t15 values (41, 16777217, 1e300, 1700000001, 1700000000000000001)",
    )
    for name, dtype, value in (
        ("near", "float32", "16777217"),
        ("far", "float32", "1e+300"),
        ("at", "float32", "1700000001"),
        ("nano", "float64", "1700000000000000001"),
    ):
        ask = ("--table", "t15", "--features", name, "--key", "id")
        said = exports.refused(*ask, "--dtype", dtype)
        assert all(word in said for word in (f"column {name}", value, "id = 41", dtype)), said
        if name == "far":
            assert "1e+300" in exports.refused(*ask, "--dtype", dtype, "--cast", "round")
            x = exports.tensors(*ask, "--dtype", dtype, "--cast", "saturate", to=name)["x"]
            assert x.tolist() == [[3.4028234663852886e38]]
            want = {"n_rounded": 0, "n_saturated": 1}
        else:
            x = exports.tensors(*ask, "--dtype", dtype, "--cast", "round", to=name)["x"]
            assert x.tolist() == [[float(np.dtype(dtype).type(float(value)))]]
            want = {"n_rounded": 1, "n_saturated": 0}
        counted = column(open_dataset(exports.home / name), name)["cast"]
        assert {k: counted[k] for k in want} == want
        exact = exports.tensors(*ask, to=f"own-{name}")["x"]
        assert exact.dtype.name == ("float64" if name in {"near", "far"} else "int64")
        assert exact.tolist() == [[float(value) if name in {"near", "far"} else int(value)]]


def test_t_16_the_narrowest_floats(tmp_path: Path) -> None:
    for dtype, value, rounded in (("float16", 65520.0, None), ("float16", 2049.0, 2048.0), ("bfloat16", 257.0, 256.0)):
        table = pa.table({"v": pa.array([value])})
        how: dict[str, Any] = {"features": ("v",), "dtype": dtype}
        assert dtype in refused(tmp_path / "no", table, **how)
        if rounded is None:
            assert "65520" in refused(tmp_path / "no", table, cast="round", **how)
            assert written(tmp_path / "s", table, cast="saturate", **how)["x"].tolist() == [[65504.0]]
            continue
        out = tmp_path / f"{dtype}{value}"
        x = written(out, table, cast="round", **how)["x"]
        wide = x if dtype == "float16" else (x.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        assert wide.tolist() == [[rounded]]
        assert column(open_dataset(out), "v")["cast"]["n_rounded"] == 1


def test_t_17_booleans_are_booleans(tmp_path: Path) -> None:
    table = pa.table({"b": pa.array([True, None, False])})
    found = written(tmp_path / "out", table)
    same(found["b"], [True, False, False], "bool")
    same(found["b.valid"], [True, False, True], "bool")
    packed = written(tmp_path / "packed", table, features=("b",))
    same(packed["x"], [[True], [False], [False]], "bool")


@pytest.mark.server("postgresql")
def test_t_19_text_among_the_features(pgdb: PostgresDatabase, exports: Exports) -> None:
    pgdb.sql("create table t19(id int primary key, price float8, label text)", "insert into t19 values (1, 2, 'x')")
    said = exports.refused("--table", "t19", "--features", "price,label", code=2)
    assert all(word in said for word in ("label", "text", "Encode", "leave it out", "keep it as text"))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_t_21_a_moment_is_one_number_whatever_its_unit(tmp_path: Path, unit: str, zone: str | None) -> None:
    factor = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    table = pa.table({"at": pa.array([1704067200 * factor, None], pa.int64()).view(pa.timestamp(unit, zone))})
    same(written(tmp_path / "out", table)["at"], [1704067200000000, 0], "int64")
    time = column(open_dataset(tmp_path / "out"), "at")["time"]
    assert (time["unit"], time["epoch"][:10], time["zone"]) == ("us", "1970-01-01", zone)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_t_22_a_duration_is_microseconds(tmp_path: Path, unit: str) -> None:
    factor = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    table = pa.table({"d": pa.array([5 * factor, None], pa.int64()).view(pa.duration(unit))})
    found = written(tmp_path / "out", table)
    same(found["d"], [5_000_000, 0], "int64")
    same(found["d.valid"], [True, False], "bool")
    assert column(open_dataset(tmp_path / "out"), "d")["time"]["unit"] == "us"


@pytest.mark.server("postgresql")
def test_t_24_decimals_are_scaled_integers(pgdb: PostgresDatabase, exports: Exports) -> None:
    pgdb.sql(
        "create table t24(id int primary key, v numeric(5,2))",
        "insert into t24 values (1, 1.10), (2, 1.15), (3, -0.01), (4, null)",
    )
    found = exports.tensors("--table", "t24")
    order = np.argsort(found["id"])
    same(found["v"][order], [110, 115, -1, 0], "int64")
    same(found["v.valid"][order], [True, True, True, False], "bool")
    decimal = column(open_dataset(exports.home / "out"), "v")["decimal"]
    assert (decimal["scale"], decimal["encoding"]) == (2, "scaled_int")


@pytest.mark.parametrize(
    "kind", [pa.decimal32(5, 2), pa.decimal64(5, 2), pa.decimal128(5, 2), pa.decimal256(5, 2)], ids=str
)
def test_t_24_whatever_width_arrow_gives_them(tmp_path: Path, kind: Any) -> None:
    values = [Decimal("1.10"), Decimal("1.15"), Decimal("-0.01"), None, Decimal("999.99")]
    table = pa.table({"v": pa.array(values, kind)})
    same(written(tmp_path / "out", table)["v"], [110, 115, -1, 0, 99999], "int64")
    x = written(tmp_path / "packed", table, features=("v",))["x"]
    assert x.dtype == np.float32
    assert x.ravel().tolist() == [float(np.float32(v or 0)) for v in values]
    same(written(tmp_path / "fill", table, nulls="fill=1.5")["v"], [110, 115, -1, 150, 99999], "int64")


POLICIES = st.sampled_from(["mask", "drop", "fill=7"])


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), rows=st.integers(0, 30), parts=st.integers(1, 4), batch_rows=st.sampled_from([1, 3, 1000]))
def test_nulls_anywhere_under_a_policy_for_each_column(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, rows: int, parts: int, batch_rows: int
) -> None:
    kinds = {"i": pa.int16(), "u": pa.uint64(), "f": pa.float64(), "d": pa.decimal128(9, 2), "t": pa.timestamp("ms")}
    values: dict[str, list[Any]] = {
        n: data.draw(st.lists(st.one_of(st.none(), st.integers(0, 99)), min_size=rows, max_size=rows)) for n in kinds
    }
    policies = {n: data.draw(POLICIES) for n in kinds}
    values["d"] = [None if v is None else Decimal(v) for v in values["d"]]
    table = pa.table({n: pa.array(v, kinds[n]) for n, v in values.items()})
    out = tmp_path_factory.mktemp("n") / "out"
    found = written(out, table, parts, batch_rows, column_nulls=policies)
    kept = [r for r in range(rows) if not any(policies[n] == "drop" and values[n][r] is None for n in kinds)]
    factors = {"d": 100, "t": 1000}
    for name, policy in policies.items():
        # A fill is said in the column's own unit: of a decimal a decimal, of a moment the stored microseconds.
        fill = 7 * (100 if name == "d" else 1) if policy == "fill=7" else 0
        want = [fill if (v := values[name][r]) is None else v * factors.get(name, 1) for r in kept]
        assert found[name].tolist() == want
        assert (f"{name}.valid" in found) == (policy == "mask")
        if policy == "mask":
            assert found[f"{name}.valid"].tolist() == [values[name][r] is not None for r in kept]
    dataset = open_dataset(out)
    source: Any = dataset.manifest.document["source"]
    assert source[0]["rows_written"] == len(kept)


def test_several_targets_and_a_weight(tmp_path: Path) -> None:
    table = pa.table(
        {
            "a": pa.array([1, None], pa.int32()),
            "t": pa.array([1, 0], pa.int64()),
            "u": pa.array([None, 5], pa.int64()),
            "w": pa.array([Decimal("0.50"), None], pa.decimal128(5, 2)),
            "k": pa.array([10, 11], pa.int64()),
        }
    )
    found = written(tmp_path / "out", table, features=("a",), target=("u", "t"), weight="w", key=("k",))
    same(found["y"], [[0, 1], [5, 0]], "int64")
    same(found["y.valid"], [[False, True], [True, True]], "bool")
    same(found["w"], [0.5, 0.0], "float64")
    same(found["w.valid"], [True, False], "bool")
    same(found["k"], [10, 11], "int64")
    said = refused(tmp_path / "no", table, features=("a",), target=("a",))
    assert "column a" in said
    for flag, names in (("features", ("a", "a")), ("target", ("t", "t")), ("key", ("k", "k"))):
        assert "twice" in refused(tmp_path / "no", table, **{"features": ("a",), flag: names})
    mixed = refused(tmp_path / "no", table, features=("k",), target=("t", "a"))
    assert "t int64" in mixed
    assert "a int32" in mixed
    wide = written(tmp_path / "wide", table, features=("k",), target=("t", "a"), target_dtype="float32")
    same(wide["y"], [[1.0, 1.0], [0.0, 0.0]], "float32")


def test_a_key_that_is_also_the_target_is_written_as_both(tmp_path: Path) -> None:
    table = pa.table({"a": pa.array([1, 2], pa.int32()), "t": pa.array([5, 6], pa.int64())})
    found = written(tmp_path / "out", table, features=("a",), target=("t",), key=("t",))
    same(found["y"], [5, 6], "int64")
    same(found["t"], [5, 6], "int64")
    both = [(c["tensor"], c["role"]) for c in open_dataset(tmp_path / "out").columns if c["name"] == "t"]
    assert both == [("y", "target"), ("t", "key")]
    named = table.rename_columns(["a", "y"])
    said = refused(tmp_path / "no", named, features=("a",), target=("y",), key=("y",))
    assert "two tensors would be named y: column y as target and as key" in said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"features": ("a",), "weight": "a"}, "column a is the weight and also a feature"),
        ({"features": ("a",), "target": ("b",), "weight": "b"}, "column b is the weight and also a target"),
        ({"features": ("a",), "target_dtype": "int8"}, "without a target"),
        ({"features": ("a",), "column_nulls": {"b": "drop"}}, "of column b: it is not written"),
        ({"column_nulls": {"c": "drop"}}, "no column c"),
    ],
)
def test_wishes_that_would_be_forgotten_are_refused(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    assert words in refused(tmp_path / "out", pa.table({"a": [1], "b": [2]}), **options)


ODD_VALUES = {
    "seconds": (pa.int64(), pa.timestamp("s"), 2**62, "4611686018427387904 s", "beyond int64 microseconds"),
    "duration": (pa.int64(), pa.duration("s"), 2**62, "4611686018427387904 s", "beyond int64 microseconds"),
    "nanosecond": (pa.int64(), pa.timestamp("ns"), 1, "1970-01-01 00:00:00.000000001", "finer than microseconds"),
    "time": (pa.int64(), pa.time64("ns"), 1, "00:00:00.000000001", "finer than microseconds"),
    "date": (pa.int64(), pa.date64(), 2**62, "4611686018427387904 ms", "beyond int32 days"),
}


@pytest.mark.parametrize("case", ODD_VALUES)
def test_a_value_that_python_cannot_show_is_shown(tmp_path: Path, case: str) -> None:
    whole, kind, number, text, why = ODD_VALUES[case]
    table = pa.table({"a": pa.array([0, None, number], whole).view(kind)})
    said = refused(tmp_path / "out", table)
    assert f"the value {text} (partition 0, row 3)" in said
    assert why in said


@pytest.mark.parametrize("kind", [pa.list_(pa.int64(), 2), pa.list_(pa.int64())], ids=["embedding", "ragged"])
def test_an_item_that_is_refused_is_named_by_the_row_of_its_list(tmp_path: Path, kind: Any) -> None:
    items = pa.timestamp("ns")
    wanted = pa.list_(items, 2) if pa.types.is_fixed_size_list(kind) else pa.list_(items)
    table = pa.table({"e": pa.array([[0, 1000], [2000, 3000], [4000, 1]], kind).view(wanted)})
    assert "(partition 0, row 3)" in refused(tmp_path / "out", table)


FEATURES: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "bool": (pa.bool_(), st.booleans()),
    **{
        f"{sign}int{bits}": (getattr(pa, f"{sign}int{bits}")(), st.sampled_from([low, high, 0, 1, high - 1]))
        for bits in (8, 16, 32, 64)
        for sign, low, high in (("", -(2 ** (bits - 1)), 2 ** (bits - 1) - 1), ("u", 0, 2**bits - 1))
    },
    "half": (pa.float16(), st.sampled_from([0.5, -65504.0, 6e-8])),
    "single": (pa.float32(), st.floats(width=32, allow_nan=False)),
    "double": (pa.float64(), st.floats(allow_nan=False)),
    "short": (pa.decimal128(6, 3), st.integers(-999_999, 999_999).map(lambda d: Decimal(d).scaleb(-3))),
    "long": (pa.decimal128(15, 2), st.integers(-(10**15) + 1, 10**15 - 1).map(lambda d: Decimal(d).scaleb(-2))),
    "date": (pa.date32(), st.integers(-(2**31), 2**31 - 1)),
}


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names=st.lists(st.sampled_from(list(FEATURES)), min_size=1, max_size=4, unique=True), data=st.data())
def test_a_matrix_without_a_dtype_is_exact_or_refused(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], data: st.DataObject
) -> None:
    values = {n: data.draw(st.lists(st.one_of(st.none(), FEATURES[n][1]), min_size=3, max_size=3)) for n in names}
    columns = {
        n: pa.array(v, pa.int32()).view(pa.date32())
        if n == "date"
        else pa.array([None if x is None else np.float16(x) for x in v], pa.float16())
        if n == "half"
        else pa.array(v, FEATURES[n][0])
        for n, v in values.items()
    }
    out = tmp_path_factory.mktemp("m") / "out"
    whole = {"int64", "uint64"} & set(names)
    real = {"half", "single", "double", "short", "long"} & set(names)
    signed = {n for n in names if n.startswith("int") or n == "date"}
    try:
        x = written(out, pa.table(columns), features=tuple(names))["x"]
    except ConfigError:
        assert "uint64" in names
        assert signed
        assert not real
        return
    except CastError:
        # 64 bits beside a float: what float64 does not hold is refused, never changed.
        assert whole
        assert real
        return
    for index, name in enumerate(names):
        for got, value in zip(x[:, index].tolist(), values[name], strict=True):
            if value is None:
                assert not got
            elif isinstance(value, Decimal):
                assert got == float(x.dtype.type(float(value)))
            else:
                assert got == (float(np.float16(value)) if name == "half" else value)
    if not real and names != ["bool"]:
        assert x.dtype.kind in "iu"


def test_what_lies_under_an_absent_list_is_no_value(tmp_path: Path) -> None:
    items = pa.array([0, 1000, 1, 3], pa.int64()).view(pa.timestamp("ns"))
    fixed = pa.FixedSizeListArray.from_arrays(items, 2, mask=pa.array([False, True]))
    ragged = pa.ListArray.from_arrays(pa.array([0, 2, 4], pa.int32()), items, mask=pa.array([False, True]))
    found = written(tmp_path / "out", pa.table({"e": fixed, "r": ragged}))
    same(found["e"], [[0, 1], [0, 0]], "int64")
    same(found["e.valid"], [True, False], "bool")
    same(found["r.values"], [0, 1], "int64")
    same(found["r.offsets"], [0, 2, 2], "int64")
    assert column(open_dataset(tmp_path / "out"), "e")["cast"]["n_rounded"] == 0
