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

    from etl.planning.binding import Bound
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
    What the sink would refuse (a cast, a NULL, a missing column) is refused here. Steps of `prepare` are fitted as in a
    run, so that one without rows in `train` fails; in the rows that come back they are fitted on all rows given.

    Args:
        pipeline: The decorated function, or its `Pipeline` value.
        sources: Each source's rows, as its query would give them.
        engine: As of `run`.
        parts: Into how many parts each source is cut at most, by its `partition_column`, else by its first column.
        **params: The pipeline's parameters.

    Raises:
        ConfigError: A source has no table or a table is of no source, or as `run`.
        EtlError: As a run of the pipeline.
    """
    bound = _placed(_value(pipeline), sources, params, parts)
    with tempfile.TemporaryDirectory(prefix="cuetl-testing-") as folder:
        own = replace(bound, write=replace(bound.write, target=f"{folder}/own", mode="create"))
        run_pipeline(own, run_id=own.run_id, engine=engine, workers=1)
        if own.write.format == "parquet":
            return _table(own.write.target)
    return _rows(bound, engine)  # tensors have lost the names and types of the rows


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
    whole = _placed(value, sources, params, 1)
    one = _rows(whole, "cpu")
    lacking = devices.survey().missing()
    if lacking:
        other = _rows(_placed(value, sources, params, PARTS), "cpu")
        said = f"pandas, one part against {PARTS}: {lacking}"
    else:
        other = _rows(whole, "gpu")
        said = "pandas against cuDF"
    _assert_same(one, other, said, tolerance)
    return said


def _value(pipeline: Defined | Pipeline) -> Pipeline:
    return pipeline if isinstance(pipeline, Pipeline) else pipeline.pipeline


def _placed(value: Pipeline, sources: Mapping[str, pa.Table], params: Mapping[str, object], parts: int) -> Bound:
    """The pipeline over tables, cut into so many parts."""
    bound = replace(value, sources=_sources(value, sources)).bind(params, new_run_id())
    wishes = {
        name: CutWish(_cut_by(value.sources[name], table), parts) if parts > 1 else CutWish(partitions=1)
        for name, table in sources.items()
    }
    return replace(bound, readings={name: replace(r, wish=wishes[name]) for name, r in bound.readings.items()})


def _rows(bound: Bound, engine: str) -> pa.Table:
    """What the function gives, in the order that the sink asks for, by way of a Parquet dataset."""
    run_id, asked = new_run_id(), bound.write.options
    plain = WriteOptions(key=asked.key, order=asked.order, seed=asked.seed)
    with tempfile.TemporaryDirectory(prefix="cuetl-testing-") as folder:
        write = replace(bound.write, target=f"{folder}/rows", format="parquet", options=plain, mode="create")
        run_pipeline(replace(bound, write=write, run_id=run_id), run_id=run_id, engine=engine, workers=1)
        return _table(write.target)


def _table(target: str) -> pa.Table:
    """All rows of a Parquet dataset, in memory of their own."""
    dataset = open_dataset(target)
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


def _cut_by(source: object, table: pa.Table) -> str | None:
    wished = getattr(source, "partition_column", None)
    plain = [f.name for f in table.schema if not pa.types.is_nested(f.type)]
    return wished if isinstance(wished, str) and wished in plain else next(iter(plain), None)


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
