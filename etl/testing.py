"""What users test pipelines with: Arrow tables in place of the sources, and the whole real path to a dataset.

    rows = etl.testing.run(churn, sources={"orders": pa.table({…})}, day=date(2024, 3, 1))

Nothing is connected to and nothing stays on disk: the dataset is made in a temporary folder and read back.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from connectors.base import CutWish, Endpoint, Query
from connectors.memory import MemorySource
from etl.core.errors import ConfigError
from etl.core.schema import nearest
from etl.engine import devices
from etl.planning.definition import Pipeline
from etl.run.naming import new_run_id
from etl.run.pipelines import run_pipeline
from etl.tensors.dataset import open_dataset
from etl.tensors.options import WriteOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from etl.planning.function import Defined

PARTS = 4
"""Into how many parts sources are cut where one part is compared with several."""


def run(
    pipeline: Defined | Pipeline,
    /,
    *,
    sources: Mapping[str, pa.Table],
    engine: str = "cpu",
    parts: int = 1,
    **params: object,
) -> pa.Table:
    """Run a pipeline on tables and give its rows: what its function returns, or its source where it has none.

    Sources, function, checks and sink are the pipeline's own; only where rows come from and go to is another place.
    What the sink would refuse (a cast, a NULL, a missing column) is refused here.

    Args:
        pipeline: The decorated function, or its `Pipeline` value.
        sources: Each source's rows, as its query would give them.
        engine: As of `run`.
        parts: Into how many parts each source is cut, by its `partition_column`, else by its first column.
        **params: The pipeline's parameters.

    Raises:
        ConfigError: A source has no table or a table is of no source, or as `run`.
        EtlError: As a run of the pipeline.
    """
    return _rows(_value(pipeline), sources, params, engine, parts)


def assert_backends_agree(
    pipeline: Defined | Pipeline,
    /,
    *,
    sources: Mapping[str, pa.Table],
    tolerance: float = 1e-9,
    **params: object,
) -> str:
    """Hold that pandas and cuDF give the same rows; without a GPU, that one part and several do.

    Rows are compared as a multiset, floats with a relative tolerance, all else exactly. NULL and NaN are two values.

    Returns:
        What was compared, in words: a test without a GPU says nothing about cuDF.

    Raises:
        AssertionError: They differ; column, values and row are named.
        EtlError: As `run`.
    """
    value = _value(pipeline)
    one = _rows(value, sources, params, "cpu", 1)
    lacking = devices.survey().missing()
    if not lacking:
        other = _rows(value, sources, params, "gpu", 1)
        said = "pandas against cuDF"
    else:
        other = _rows(value, sources, params, "cpu", PARTS)
        said = f"pandas, one part against {PARTS}: {lacking}"
    _assert_same(one, other, said, tolerance)
    return said


def _value(pipeline: Defined | Pipeline) -> Pipeline:
    return pipeline if isinstance(pipeline, Pipeline) else pipeline.pipeline


def _rows(
    value: Pipeline, sources: Mapping[str, pa.Table], params: Mapping[str, object], engine: str, parts: int
) -> pa.Table:
    run_id = new_run_id()
    bound = replace(value, sources=_sources(value, sources)).bind(params, run_id)
    readings = {
        name: replace(one, wish=CutWish(_cut_by(value.sources[name], sources[name]) if parts > 1 else None, parts))
        for name, one in bound.readings.items()
    }
    bound = replace(bound, readings=readings)
    workers = 1 if parts == 1 else None
    with tempfile.TemporaryDirectory(prefix="cuetl-testing-") as folder:
        bound = replace(bound, write=replace(bound.write, target=f"{folder}/own", mode="create"))
        run_pipeline(bound, run_id=run_id, engine=engine, workers=workers)
        if bound.write.format != "parquet":  # tensors have lost the names and types of the rows
            options = bound.write.options
            plain = WriteOptions(key=options.key, order=options.order, seed=options.seed)
            write = replace(bound.write, target=f"{folder}/rows", format="parquet", options=plain)
            bound = replace(bound, write=write, run_id=new_run_id())
            run_pipeline(bound, run_id=bound.run_id, engine=engine, workers=workers)
        dataset = open_dataset(bound.write.target)
        return pa.concat_tables([dataset.split(name).table() for name in dataset.splits]).combine_chunks()


def _sources(value: Pipeline, tables: Mapping[str, pa.Table]) -> dict[str, MemorySource]:
    for name in tables:
        if name not in value.sources:
            hint = nearest(name, value.sources, what="sources")
            raise ConfigError(f"pipeline {value.name} has no source {name}", hint=hint)
    for name in value.sources:
        if name not in tables:
            raise ConfigError(f"source {name} of pipeline {value.name} has no table", hint="Give one in sources=.")
    return {name: MemorySource(tables[name], Query(table=name), Endpoint("memory", "memory")) for name in value.sources}


def _cut_by(source: object, table: pa.Table) -> str:
    wished = getattr(source, "partition_column", None)
    return wished if isinstance(wished, str) and wished in table.column_names else table.column_names[0]


def _assert_same(one: pa.Table, other: pa.Table, said: str, tolerance: float) -> None:
    """Hold that two tables are the same multiset of rows.

    Raises:
        AssertionError: They are not.
    """
    if not one.schema.equals(other.schema):
        raise AssertionError(f"{said}: the columns differ: {one.schema} and {other.schema}")
    if one.num_rows != other.num_rows:
        raise AssertionError(f"{said}: {one.num_rows} and {other.num_rows} rows")
    left, right = _sorted(one), _sorted(other)
    for name in one.column_names:
        apart = _apart(left.column(name), right.column(name), tolerance)
        if apart is not None:
            first, second = (table.column(name)[apart].as_py() for table in (left, right))
            row = left.slice(apart, 1).to_pylist()[0]
            raise AssertionError(f"{said}: column {name} is {first!r} and {second!r} in the row {row}")


def _sorted(table: pa.Table) -> pa.Table:
    """The rows in one order whatever order they came in: by exact columns first, then by floats."""
    plain = [f for f in table.schema if not pa.types.is_nested(f.type)]
    by = sorted(plain, key=lambda f: pa.types.is_floating(f.type))
    return table.sort_by([(f.name, "ascending") for f in by]) if by else table


def _apart(left: pa.ChunkedArray[Any], right: pa.ChunkedArray[Any], tolerance: float) -> int | None:
    """The first row in which two columns differ."""
    if not pa.types.is_floating(left.type):
        if left.equals(right):
            return None
        return next(i for i, (a, b) in enumerate(zip(left, right, strict=True)) if not a.equals(b))
    one, other = (column.cast(pa.float64()).fill_null(pa.scalar(0.0)).to_numpy() for column in (left, right))
    null = [column.is_null().to_numpy() for column in (left, right)]
    same = np.isclose(one, other, rtol=tolerance, atol=0.0, equal_nan=True) & (null[0] == null[1])
    return None if same.all() else int(np.argmin(same))
