"""Any sequence of exports and operations leaves in every version what a plain-Python model says."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as arrow  # noqa: ICN001 - `pa` is its untyped door, below
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl.core.errors import DatasetError
from etl.tensors import operations
from etl.tensors.dataset import open_dataset
from etl.tensors.erase import erase
from etl.tensors.options import WriteOptions
from etl.tensors.versions import history
from tests.datasets import export

if TYPE_CHECKING:
    from etl.tensors.options import Format

pa: Any = arrow  # the stubs do not know short lists as columns

KEYED = WriteOptions(partition_bytes=1 << 17, key=("id",))
"""Under an eighth of a target, files of one run are joined and those of several can be."""

ids = st.lists(st.integers(0, 7), min_size=1, max_size=5)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), ids),
        st.tuples(st.just("replace"), ids),
        st.tuples(st.just("rollback"), st.integers(0, 9)),
        st.tuples(st.just("vacuum"), st.integers(1, 3)),
        st.tuples(st.just("compact"), st.none()),
        st.tuples(st.just("erase"), st.lists(st.integers(0, 7), min_size=1, max_size=2)),
    ),
    max_size=7,
)


@dataclass
class Model:
    """What a dataset must hold: files by number, and per version the files that it lists."""

    files: dict[int, list[int]] = field(default_factory=dict)
    versions: list[list[int]] = field(default_factory=list)
    there: set[int] = field(default_factory=set)

    def add(self, rows: list[int]) -> int:
        number = len(self.files)
        self.files[number] = rows
        self.there.add(number)
        return number

    def rows(self, version: list[int]) -> list[int] | None:
        """None: a vacuum took its data."""
        return [i for f in version for i in self.files[f]] if set(version) <= self.there else None

    def append(self, rows: list[int]) -> None:
        self.versions.append([*self.versions[-1], self.add(rows)])

    def replace(self, rows: list[int]) -> None:
        self.versions.append([self.add(rows)])

    def rollback(self, version: int) -> None:
        self.versions.append(list(self.versions[version]))

    def vacuum(self, keep: int) -> None:
        self.there &= {f for version in self.versions[-keep:] for f in version}

    def compact(self) -> None:
        newest = self.versions[-1]
        if len(newest) > 1:
            self.versions.append([self.add([i for f in newest for i in self.files[f]])])

    def erase(self, keys: list[int]) -> None:
        # What a vacuum left of versions that are no longer whole goes too.
        self.there = {f for v in self.versions if self.rows(v) is not None for f in v}
        hit = [f for f in self.there if set(self.files[f]) & set(keys)]
        for f in hit:
            self.files[f] = [i for i in self.files[f] if i not in keys]
        if hit:
            self.versions.append(list(self.versions[-1]))


def table(rows: list[int]) -> Any:
    return pa.table(
        {"id": pa.array(rows, pa.int64()), "t": pa.array([None if i % 3 == 0 else f"t{i}" for i in rows], pa.string())}
    )


def held(out: Path, version: int) -> list[int]:
    found = open_dataset(out, version, "sha256")
    paths = [f.path if f.text_file is None else f.text_file.path for f in found.manifest.files]
    tables = [pq.read_table(found.locate(path)) for path in paths]
    texts = [t for one in tables for t in one.column("t").to_pylist()]
    rows: list[Any]
    if found.manifest.format == "parquet":
        rows = [i for one in tables for i in one.column("id").to_pylist()]
    else:
        rows = found.tensors()["id"].tolist()
    assert texts == table(rows).column("t").to_pylist()
    (counted,) = (dict[str, Any](c)["null"]["count"] for c in found.columns if c["name"] == "t")
    assert counted == texts.count(None)
    return rows


def check(out: Path, model: Model) -> None:
    chain = history(out, open_dataset(out).manifest)
    assert len(chain) == len(model.versions)
    for manifest, version in zip(reversed(chain), model.versions, strict=True):
        rows = model.rows(version)
        if rows is None:
            with pytest.raises(DatasetError):
                open_dataset(out, manifest.version)
        else:
            assert held(out, manifest.version) == rows
    newest = chain[0]
    named = {p.name for p in out.iterdir() if p.is_file() and not p.name.startswith("_")}
    assert named == {f.path for f in newest.files}


@pytest.mark.parametrize("fmt", ["parquet", "safetensors"])
@settings(max_examples=10)
@given(first=ids, steps=steps)
def test_versions_hold_what_the_model_says(fmt: Format, first: list[int], steps: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        model = Model()
        export(out, table(first), fmt=fmt, options=KEYED)
        model.replace(first)
        for number, (step, value) in enumerate(steps):
            match step:
                case "append" | "replace":
                    export(out, table(value), fmt=fmt, options=KEYED, mode=step, run_id=f"s{number}")
                    getattr(model, step)(value)
                case "rollback":
                    older = [i for i, v in enumerate(model.versions[:-1]) if model.rows(v) is not None]
                    if older:
                        wanted = older[value % len(older)]
                        numbers = [v.version for v in reversed(history(out, open_dataset(out).manifest))]
                        operations.rollback(out, numbers[wanted])
                        model.rollback(wanted)
                case "vacuum":
                    operations.vacuum(out, keep=value)
                    model.vacuum(value)
                case "compact":
                    made = operations.compact(out)
                    before = len(model.versions)
                    model.compact()
                    assert (made is None) == (len(model.versions) == before)
                case _:
                    erase(out, [str(key) for key in value])
                    model.erase(value)
        check(out, model)
