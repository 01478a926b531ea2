"""A fit as an ONNX model gives what the dataset has, on its own rows and at every edge; or there is no model."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from etl import Tensors, load_preprocessor, open_dataset, pipeline
from etl.core.errors import ConfigError, DataError
from etl.core.schema import Schema
from etl.tensors.pack import native_dtype
from etl.transforms import (
    Age,
    Bucketize,
    Cast,
    Categorify,
    Clip,
    DateParts,
    DropNull,
    FillNull,
    HashBucket,
    ListPad,
    Log1p,
    MaxAbs,
    MinMax,
    NullIndicator,
    OneHot,
    QuantileBins,
    Rename,
    Robust,
    Select,
    Standardize,
    TextNormalize,
    Winsorize,
)
from etl.transforms.asking import asked_of, inputs_of
from etl.transforms.calendar import CLOCK, PARTS
from etl.transforms.export.model import exported
from etl.transforms.export.parity import proved, ulps
from etl.transforms.export.tensors import fed
from etl.transforms.export.written import write_proved
from etl.transforms.fit import planned, served
from etl.transforms.handing import Column, Output
from etl.transforms.serving import Preprocessor
from tests.preparing import fit, schema_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from etl.transforms.base import Transform


def fitted(
    folder: Path,
    table: pa.Table,
    steps: Sequence[Transform],
    features: Sequence[str] = (),
    *,
    dtype: str | None = None,
    cast: Any = "exact",
) -> Preprocessor:
    place = folder / f"d{len(list(folder.iterdir()))}"
    sink = Tensors(str(place), features=list(features), dtype=dtype, cast=cast)
    pipeline(name="p", sources={"t": table}, sink=sink, prepare=list(steps)).run()
    return load_preprocessor(place)


def run(model: Path, inputs: Mapping[str, Any]) -> dict[str, Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return dict(zip([one.name for one in session.get_outputs()], session.run(None, dict(inputs)), strict=True))


def ran(prep: Preprocessor, model: Path, table: pa.Table) -> dict[str, Any]:
    return run(model, fed(prep.inputs, asked_of(table, prep.inputs, strict=False)[1]))


def test_epoch_seconds_are_scaled_in_double(tmp_path: Path) -> None:
    table = pa.table({"t": pa.array([1700000000, 1700000001, 1700000060], pa.int64())})
    prep = fitted(tmp_path, table, [Standardize("t")])
    prep.to_onnx(tmp_path / "m.onnx")
    made = ran(prep, tmp_path / "m.onnx", table)
    want = np.array([-0.7248562, -0.6892076, 1.4140638], np.float32)
    np.testing.assert_array_max_ulp(made["out.t"], want, 1)
    assert made["out.t"].tobytes() == prep.transform(table)["t"].tobytes()


def test_keys_never_pass_through_floats(tmp_path: Path) -> None:
    table = pa.table({"k": pa.array([16777216, 16777217, 3], pa.int64())})
    prep = fitted(tmp_path, table, [Categorify("k")])
    prep.to_onnx(tmp_path / "m.onnx")
    model = onnx.load(tmp_path / "m.onnx")
    assert model.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.INT64
    assert ran(prep, tmp_path / "m.onnx", table)["out.k"].tolist() == [4, 5, 3]
    assert prep.transform(table)["k"].tolist() == [4, 5, 3]


def test_what_the_batch_path_refuses_has_a_status(tmp_path: Path) -> None:
    table = pa.table({"c": ["a", "b", "a"], "p": [0.0, 1.0, 2.0]})
    prep = fitted(tmp_path, table, [OneHot("c", unseen="error"), Log1p("p")])
    prep.to_onnx(tmp_path / "m.onnx")
    given = {"c": np.array(["a", "?", "b", "?"], object), "p": np.array([1.0, 1.0, -1.0, -1.0])}
    made = run(tmp_path / "m.onnx", given)
    assert made["status"].tolist() == [0, 1, 2, 1]
    assert made["out.c"].tolist() == [[1, 0], [0, 0], [0, 1], [0, 0]]
    words = {one.key: one.value for one in onnx.load(tmp_path / "m.onnx").metadata_props}
    assert json.loads(words["cuetl.status"])["2"] == "step 2, Log1p"
    assert "not for TensorRT" in words["cuetl.devices"]


def of(table: pa.Table, steps: Sequence[Transform], *, dtype: str | None = None, policy: str = "exact") -> Preprocessor:
    """A fit in memory: every column a tensor of its own, or all of them packed."""
    given = Schema(tuple(replace(one, vocabulary=LABELS) if one.name == "label" else one for one in schema_of(table)))
    states = fit(steps, table)[1]
    plan = planned(steps, given, states)
    columns = []
    for at, one in enumerate(plan.returns):
        kind: Any = one.type
        vector = pa.types.is_fixed_size_list(kind)
        own = "object" if pa.types.is_string(kind) else native_dtype(kind.value_type if vector else kind)
        columns.append(
            Column(
                field=one,
                dtype=dtype or own,
                index=at if dtype else None,
                width=kind.list_size if vector else None,
                fill=0,
                policy=policy,
                nulls="mask",
                valid=one.nullable and own != "object",
            )
        )
    outputs = (
        [Output("x", str(dtype), tuple(columns))] if dtype else [Output(c.field.name, c.dtype, (c,)) for c in columns]
    )
    names = list(plan.returns.names)
    kept, figures = served(plan, states, names)
    asked = inputs_of(kept, names)
    known = table.select([one.field.name for one in asked])
    return Preprocessor(
        fit_id="0" * 16,
        version=1,
        plan=kept,
        states=figures,
        inputs=asked,
        outputs=tuple(outputs),
        feature_order=tuple(names),
        feature_order_sha256="0" * 64,
        _golden=lambda: (known, known),
    )


LABELS = ("x", "y")
T = pa.timestamp("us", tz="UTC")
ROWS: Any = {
    "whole": pa.array([5, None, -3, 8, 5, 0], pa.int32()),
    "big": pa.array([(1 << 60) + 7, (1 << 60) + 9, None, 1 << 60, (1 << 60) + 1, -5], pa.int64()),
    "byte": pa.array([5, 0, 255, None, 7, 7], pa.uint8()),
    "huge": pa.array([5, (1 << 64) - 1, 1 << 63, None, 7, 7], pa.uint64()),
    "real": pa.array([0.5, math.nan, None, -0.0, 3.5, 1e-9], pa.float64()),
    "narrow": pa.array([0.5, math.nan, None, 0.0, 3.5, math.inf], pa.float32()),
    "money": pa.array(
        [Decimal("1.15"), None, Decimal("-2.50"), Decimal("0.00"), Decimal("9.99"), None], pa.decimal128(9, 2)
    ),
    "flag": pa.array([True, None, False, True, True, None]),
    "text": pa.array(["a", "", None, "a\nb", "b", "a"]),
    "label": pa.array(["x", "y", None, "x", "y", "x"]).dictionary_encode(),
    "at": pa.array([datetime(2024, 2, 29, 13, 5, tzinfo=UTC), None, datetime(1931, 12, 31, tzinfo=UTC)] * 2, T),
    "day": pa.array([date(2024, 2, 29), None, date(1931, 12, 31)] * 2),
    "clock": pa.array([time(1, 2, 3, 4), None, time(23, 59, 59)] * 2, pa.time64("us")),
    "span": pa.array([timedelta(1), None, timedelta(-1)] * 2, pa.duration("us")),
}
NUMBERS = ("whole", "byte", "real", "narrow", "money", "flag")
SCALED = ("big", *NUMBERS)
KEYS = ("whole", "big", "byte", "huge", "money", "flag", "text", "label", "at", "day", "span")
DAYS: Any = [part for part in PARTS if part not in CLOCK]
ALL: Any = list(PARTS)
WAYS: list[tuple[str, Transform]] = [
    *((name, make(name)) for name in SCALED for make in (Standardize, MaxAbs, MinMax, Robust)),
    *((name, MinMax(name, low=-1.0, high=2.5, clip=True)) for name in SCALED),
    *((name, Log1p(name)) for name in ("byte", "flag")),
    *((name, make(name)) for name in KEYS for make in (Categorify, OneHot, NullIndicator)),
    *((name, OneHot(name, unseen="error", drop="first")) for name in KEYS),
    *((name, Categorify(name, min_count=2)) for name in KEYS),
    *((name, Bucketize(name, [-2.5, 0, 0.1, 3])) for name in SCALED),
    *((name, Bucketize(name, [-1e30, 0, 5, 1e30], right=False)) for name in SCALED),
    *((name, QuantileBins(name, 3)) for name in NUMBERS),
    *((name, Winsorize(name, 0.2, 0.8)) for name in NUMBERS if name != "flag"),
    *((name, Clip(name, 0, 4)) for name in ("whole", "byte", "big", "real", "narrow", "money")),
    *((name, Clip(name, high=3)) for name in ("whole", "byte", "big", "real", "narrow", "money")),
    *((name, Cast(name, "float64", "round")) for name in SCALED),
    *((name, Cast(name, "float32", how)) for name in SCALED for how in ("exact", "round", "saturate")),
    *((name, Cast(name, "int8", how)) for name in SCALED for how in ("exact", "round", "saturate")),
    *((name, Cast(name, "uint16", "saturate")) for name in SCALED),
    *((name, Cast(name, "int64", "round")) for name in SCALED),
    *((name, Cast(name, "bool")) for name in SCALED),
    *((name, Cast(name, "string")) for name in ("whole", "huge", "byte", "flag", "label")),
    *((name, FillNull(name, "mode")) for name in KEYS if name != "span"),
    *((name, FillNull(name, "mean")) for name in NUMBERS if name != "flag"),
    *((name, FillNull(name, "median", f"{name}_null")) for name in NUMBERS if name != "flag"),
    ("at", DateParts("at", ALL)),
    ("day", DateParts("day", DAYS)),
    ("clock", DateParts("clock", list(CLOCK))),
    *((name, Age(name, unit="years")) for name in ("at", "day")),
    ("at", Age("at", "2020-01-01T00:00:00Z", "seconds", "age", dtype="float64")),
    ("whole", Rename({"whole": "other"})),
    ("whole", Select("whole")),
]


@pytest.mark.parametrize(
    ("name", "step"), WAYS, ids=[f"{step.kind}-{name}-{at}" for at, (name, step) in enumerate(WAYS)]
)
def test_every_step_is_proved_on_every_kind_of_column(name: str, step: Transform) -> None:
    prep = of(pa.table({name: ROWS[name]}), [step])
    record = proved(prep, exported(prep))
    assert record["passed"] is True
    assert record["rows"]["golden"] == 6  # type: ignore[index]
    assert record["rows"]["edge"] > 2  # type: ignore[index]
    assert record["max_ulps"] <= 1  # type: ignore[operator]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int64", "uint8", "bool"])
@pytest.mark.parametrize("policy", ["exact", "round", "saturate"])
def test_columns_are_packed_as_the_dataset_packs_them(dtype: str, policy: str) -> None:
    names = ["whole", "byte", "real", "narrow", "flag", *(["money"] if dtype.startswith("float") else [])]
    prep = of(pa.table({name: ROWS[name] for name in names}), [], dtype=dtype, policy=policy)
    proved(prep, exported(prep))


def test_a_model_of_another_fit_is_told_apart() -> None:
    rows = pa.table({"real": [1.0, 2.0, 4.0], "text": ["a", "b", "b"]})
    steps: list[Transform] = [Standardize("real"), Categorify("text")]
    prep = of(rows, steps)
    others = pa.table({"real": [1.0, 2.0, 4.0000001], "text": ["a", "b", "b"]})
    with pytest.raises(DataError, match=r"differs from it in real for row .* \(real = .*: it gives .*, and the fit "):
        proved(prep, exported(of(others, steps)))
    others = pa.table({"real": [1.0, 2.0, 4.0], "text": ["a", "a", "b"]})
    with pytest.raises(DataError, match=r"differs from it in text for row "):
        proved(prep, exported(of(others, steps)))
    with pytest.raises(DataError, match=r"differs from it in status for row .* \(real = "):
        proved(of(rows, [Log1p("real")]), exported(of(rows, [MaxAbs("real")])))


def test_what_has_no_form_is_named_and_no_file_is_written(tmp_path: Path) -> None:
    table = pa.table(
        {
            "text": ["a", "b"],
            "tags": [[1], [2, 3]],
            "real": [1.0, 2.0],
            "key": [1, 2],
            "at": pa.array([0, 1], T),
        }
    )
    steps: list[Transform] = [
        TextNormalize("text"),
        HashBucket("text", 8),
        Standardize("real", by="key"),
        MaxAbs("real"),
        Categorify("key", oov_buckets=2),
        DateParts("at", ["hour"], tz="Europe/Berlin"),
        ListPad("tags", 2),
    ]
    prep = of(table, steps)
    with pytest.raises(ConfigError) as caught:
        prep.to_onnx(tmp_path / "m.onnx")
    said = caught.value.message
    assert [said.count(f"step {number}, ") for number in range(1, 8)] == [1, 1, 1, 0, 1, 1, 1], said
    for words in ("TextNormalize", "by='key'", "oov_buckets=2", "Europe/Berlin", "column tags"):
        assert words in said
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_differs_is_not_written(tmp_path: Path) -> None:
    prep, other = (of(pa.table({"real": [1.0, last]}), [Standardize("real")]) for last in (2.0, 2.5))
    with pytest.raises(DataError, match="No file was written"):
        write_proved(prep, exported(other), tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []
    write_proved(prep, exported(prep), tmp_path / "m.onnx")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["m.onnx", "parity.json"]


def test_the_proof_is_beside_the_model(tmp_path: Path) -> None:
    table = pa.table({name: ROWS[name] for name in ("real", "money", "text", "label", "at", "whole")})
    steps: list[Transform] = [
        DropNull("whole"),
        FillNull("money", "mean"),
        Standardize(["real", "money"]),
        Categorify(["text", "label"]),
        DateParts("at", ["hour"]),
        Select(["real", "money", "text", "label", "at_hour"]),
        Clip("real", -1, 1),
    ]
    prep = fitted(tmp_path, table, steps, ["real", "money", "text", "label", "at_hour"], dtype="float32")
    (tmp_path / "out").mkdir()
    record = prep.to_onnx(tmp_path / "out" / "m.onnx")
    assert sorted(one.name for one in (tmp_path / "out").iterdir()) == ["m.onnx", "parity.json"]
    assert json.loads((tmp_path / "out" / "parity.json").read_text()) == record
    assert record["model_sha256"] == hashlib.sha256((tmp_path / "out" / "m.onnx").read_bytes()).hexdigest()
    assert record["fit_id"] == prep.fit_id
    first = (tmp_path / "out" / "m.onnx").read_bytes()
    prep.to_onnx(tmp_path / "out" / "m.onnx")
    assert (tmp_path / "out" / "m.onnx").read_bytes() == first
    made, want = ran(prep, tmp_path / "out" / "m.onnx", table), prep.transform(table)
    assert {*made} == {*want, "status"}
    for name, tensor in want.items():
        assert made[name].tobytes() == tensor.tobytes(), name
    words = {one.key: one.value for one in onnx.load(tmp_path / "out" / "m.onnx").metadata_props}
    assert words["cuetl.feature_order_sha256"] == prep.feature_order_sha256
    assert json.loads(words["cuetl.feature_order"]) == list(prep.feature_order)
    with pytest.raises(ConfigError, match="no folder"):
        prep.to_onnx(tmp_path / "none" / "m.onnx")


def test_a_valid_that_is_left_out_is_true_everywhere(tmp_path: Path) -> None:
    prep = of(pa.table({"whole": ROWS["whole"], "text": ROWS["text"]}), [Categorify("text"), NullIndicator("whole")])
    prep.to_onnx(tmp_path / "m.onnx")
    given = {"whole": np.array([1, 2]), "text": np.array(["a", ""], object)}
    made = run(tmp_path / "m.onnx", given)
    assert made["whole_null"].tolist() == [False, False]
    assert made["out.text"].tolist() == prep.transform(pa.table({"whole": [1, 2], "text": ["a", ""]}))["text"].tolist()
    made = run(tmp_path / "m.onnx", {**given, "text.valid": np.array([True, False])})
    assert made["out.text"].tolist()[1] == 1
    assert {
        name: tensor.shape[0]
        for name, tensor in run(tmp_path / "m.onnx", {"whole": np.zeros(0, int), "text": np.zeros(0, object)}).items()
    } == dict.fromkeys(made, 0)


def test_a_value_that_its_column_does_not_have_has_a_status(tmp_path: Path) -> None:
    prep = of(pa.table({"byte": ROWS["byte"], "money": ROWS["money"]}), [Standardize(["byte", "money"])])
    prep.to_onnx(tmp_path / "m.onnx")
    given = {"byte": np.array([255, 256, -1, 0]), "money": np.array([1, 1, 1, 10**9])}
    assert run(tmp_path / "m.onnx", given)["status"].tolist() == [0, -1, -1, -1]


def test_distances_of_floats() -> None:
    for dtype in (np.float16, np.float32, np.float64):
        one = np.array([1.0, -0.0, 0.0, np.nan, np.inf, -1.0, 5.0], dtype)
        up = np.nextafter(one, dtype(np.inf))
        assert ulps(one, one).tolist() == [0] * 7
        assert ulps(one, up)[[0, 2, 5, 6]].tolist() == [1] * 4
        assert int(ulps(np.array([0.0], dtype), np.array([np.nan], dtype))[0]) > 1
        assert int(ulps(np.array([1.0], dtype), np.array([-1.0], dtype))[0]) > 1000
    assert ulps(np.array([0.0]), np.array([-0.0])).tolist() == [0]


REALS = st.floats(width=64) | st.floats(-1e6, 1e6) | st.sampled_from([0.0, -0.0, 0.5, 1.0, math.inf])
VALUES: dict[Any, Any] = {
    pa.int16(): st.integers(-(1 << 15), (1 << 15) - 1),
    pa.int64(): st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-3, 3),
    pa.float64(): REALS,
    pa.decimal128(18, 2): st.decimals(Decimal("-1e15"), Decimal("1e15"), places=2),
    pa.decimal128(12, 3): st.decimals(-(10**8), 10**8, places=3),
    pa.bool_(): st.booleans(),
}
NEXT: list[Any] = [
    lambda draw: FillNull("v", draw(st.sampled_from(["mean", "median", "mode"]))),
    lambda _: Standardize("v"),
    lambda draw: MinMax("v", clip=draw(st.booleans())),
    lambda _: MaxAbs("v"),
    lambda _: Robust("v"),
    lambda _: Log1p("v"),
    lambda draw: Bucketize("v", sorted(draw(st.sets(st.integers(-50, 50), min_size=1, max_size=5)))),
    lambda draw: Clip("v", draw(st.integers(-9, 0)), draw(st.integers(1, 9))),
    lambda draw: Cast(
        "v",
        draw(st.sampled_from(["float32", "float64", "int32", "int64"])),
        draw(st.sampled_from(["round", "saturate"])),
    ),
    lambda _: Categorify("v"),
    lambda draw: OneHot("v", unseen=draw(st.sampled_from(["zeros", "error"])), max_size=5),
]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(data=st.data())
def test_chains_of_steps_are_proved(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(list(VALUES)))
    values = data.draw(st.lists(st.none() | VALUES[kind], min_size=2, max_size=8))
    steps = [data.draw(st.sampled_from(NEXT))(data.draw) for _ in range(data.draw(st.integers(1, 3)))]
    try:
        prep = of(pa.table({"v": pa.array(values, kind)}), steps)
    except (ConfigError, DataError):
        reject()
    record = proved(prep, exported(prep))
    assert record["max_ulps"] <= 1  # type: ignore[operator]


def entry_of(dataset: Path) -> dict[str, Any]:
    fit: Any = open_dataset(dataset).manifest.document["fit"]
    entry: dict[str, Any] = fit["onnx"]
    return entry


def test_a_dataset_has_the_model_of_its_fit(tmp_path: Path) -> None:
    table = pa.table({name: ROWS[name] for name in ("real", "money", "text", "label")} | {"id": range(6)})
    steps: list[Transform] = [FillNull("money", "mean"), Standardize(["real", "money"]), Categorify(["text", "label"])]
    for to, features in (("packed", ["real", "money", "text", "label"]), ("columns", [])):
        sink = Tensors(str(tmp_path / to), features=features, key="id", dtype="float32", cast="round", onnx=True)
        pipeline(name="p", sources={"t": table}, sink=sink, prepare=steps).run()
        prep, said = load_preprocessor(tmp_path / to), entry_of(tmp_path / to)
        model = tmp_path / to / said["model"]
        record = json.loads((tmp_path / to / said["parity"]).read_text())
        assert said["passed"] is record["passed"] is True
        assert said["model_sha256"] == record["model_sha256"] == hashlib.sha256(model.read_bytes()).hexdigest()
        assert record["rows"]["golden"] == 6
        assert record["fit_id"] == prep.fit_id
        exporting = prep.to_onnx(tmp_path / f"{to}.onnx")
        assert exporting["model_sha256"] == record["model_sha256"]
        made, want = ran(prep, model, table), prep.transform(table)
        for name, tensor in want.items():
            assert made.get(f"out.{name}", made.get(name)).tobytes() == tensor.tobytes(), name  # type: ignore[union-attr]
        assert prep.prove() == 6


def test_a_dataset_whose_steps_have_no_form_is_refused_before_a_row_is_read(tmp_path: Path) -> None:
    table = pa.table({"text": ["a", "b"], "real": [1.0, 2.0]})
    sink = Tensors(str(tmp_path / "d"), onnx=True)
    steps: list[Transform] = [TextNormalize("text"), HashBucket("text", 8)]
    for more, match in (([MaxAbs("real")], "onnx=True: TextNormalize, HashBucket have"), ([], "no ONNX form: step 1")):
        with pytest.raises(ConfigError, match=match):
            pipeline(name="p", sources={"t": table}, sink=sink, prepare=[*steps, *more]).run()
    with pytest.raises(ConfigError, match="without prepare"):
        pipeline(name="p", sources={"t": table}, sink=sink).run()
    assert list(tmp_path.iterdir()) == []
