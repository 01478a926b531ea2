"""Sinks that keep the data of some versions: older ones are vacuumed once the new one is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from etl import Parquet, Tensors, pipeline
from etl.core.errors import ConfigError, EtlError
from etl.tensors.dataset import open_dataset
from etl.transforms import Standardize

if TYPE_CHECKING:
    from pathlib import Path

    from etl.api import Definition


def numbered(sink: Tensors | Parquet, first: int, *, fitted: bool = False) -> Definition:
    table = pa.table({"id": pa.array(range(first, first + 10)), "x": pa.array([float(i) for i in range(10)])})
    return pipeline(name="kept", sources={"rows": table}, sink=sink, prepare=[Standardize("x")] if fitted else [])


def ids(to: str, version: int) -> list[int]:
    dataset = open_dataset(to, version=version)
    if dataset.manifest.format == "parquet":
        return [int(str(one)) for one in dataset.table(["id"]).column("id").to_pylist()]
    return [int(one) for one in dataset.tensors()["id"]]


@pytest.mark.parametrize(("kind", "fitted"), [(Tensors, False), (Parquet, False), (Tensors, True)])
def test_older_versions_lose_their_data_when_a_new_one_is_published(
    kind: Any,
    fitted: bool,  # noqa: FBT001 - a case
    tmp_path: Path,
) -> None:
    to = str(tmp_path / "d")
    for first in (0, 100, 200):
        result = numbered(kind(to, key="id", keep=2), first, fitted=fitted).run()
        assert "keep" not in {w["code"] for w in result.warnings}
    assert open_dataset(to).manifest.version == 3
    for version, first in ((2, 100), (3, 200)):
        assert ids(to, version) == [*range(first, first + 10)]
    with pytest.raises(EtlError, match="vacuum"):
        ids(to, 1)


def test_what_cannot_be_vacuumed_is_a_warning_since_the_version_is_there(tmp_path: Path) -> None:
    to = str(tmp_path / "d")
    for first in (0, 100):
        numbered(Parquet(to, key="id"), first).run()
    (old,) = (tmp_path / "d" / "_manifests").glob("*1.json")
    old.write_text("{", encoding="utf-8")
    result = numbered(Parquet(to, key="id", keep=1), 200).run()
    assert (result.status, result.version) == ("succeeded", 3)
    (told,) = (str(w["text"]) for w in result.warnings if w["code"] == "keep")
    assert told.startswith("older versions were not vacuumed: ")


@pytest.mark.parametrize("keep", [0, -1, True, "2"])
def test_a_sink_keeps_one_version_at_least(keep: Any) -> None:
    with pytest.raises(ConfigError, match=r"keep is .*It is a whole number from 1 on"):
        Tensors("out", keep=keep)
