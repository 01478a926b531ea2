"""What a run reads and writes, as values: sources, datasets, and jobs of one source and its datasets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from connectors.base import CutWish

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.base import Endpoint, Mode, PartRecord, Query, Sink, Source, SourceRecord
    from etl.planning.steps import Steps
    from etl.tensors.checking import RowChecks
    from etl.tensors.fits import SavedFit
    from etl.tensors.keeping import Contract
    from etl.tensors.options import Format, WriteOptions


RETRIES = 3
"""More tries of a part after its first, where nothing else is asked for."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One source of a run.

    Attributes:
        endpoint: Where the store is.
        query: What is read.
        wish: How it should be cut.
        name: The source's name in manifests.
        count: Whether the whole source is counted once in the snapshot; the count of each part always stays.
        source: Rows that the value itself carries (an Arrow table); None: the connector of `endpoint` is asked.
        frozen: Its rows no longer change, so that a resumed run keeps parts of an earlier snapshot.
    """

    endpoint: Endpoint
    query: Query
    wish: CutWish = field(default_factory=CutWish)
    name: str = "source"
    count: bool = True
    source: Source | None = None
    frozen: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    """One dataset to publish at `target` in `format`; with a `sink`, rows that go there and are no dataset.

    `fit`: what the rows are prepared with, to be saved with the dataset. `checks`: what must hold of them,
    `contract`: of their columns. `keep`: how
    many versions keep their data once this one is published; None: all.
    """

    target: str
    format: Format
    options: WriteOptions
    mode: Mode = "create"
    sink: Sink | None = None
    fit: SavedFit | None = None
    checks: RowChecks | None = None
    contract: Contract | None = None
    keep: int | None = None


@dataclass(frozen=True, slots=True)
class Lineage:
    """What the rows of a pass were made of, which its manifest lists in place of the files that it reads.

    Attributes:
        sources: The stores' own, with their snapshots.
        parts: Of the sources.
        warnings: Of reading them, and of the function.
    """

    sources: tuple[SourceRecord, ...]
    parts: tuple[PartRecord, ...]
    warnings: tuple[Mapping[str, object], ...]


@dataclass(frozen=True, slots=True)
class Job:
    """One read and every dataset that is published from it.

    Attributes:
        read: What is read.
        writes: What is published.
        steps: What happens to the rows of each part in between; None: they pass straight through.
        retries: More tries of a part after its first.
        of: Where the rows come from, when what is read are the files of an earlier pass.
    """

    read: Reading
    writes: tuple[Write, ...]
    steps: Steps | None = None
    retries: int = RETRIES
    of: Lineage | None = None
