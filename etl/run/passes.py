"""What several passes of one run share: the folder in which rows wait, and the job that publishes what came of them."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from connectors.base import CutWish, Endpoint, Query
from etl.planning.jobs import Job, Lineage, Reading, Write
from etl.run.spool import SpoolSource
from etl.tensors.options import WriteOptions
from etl.tensors.places import Place, place_of
from etl.tensors.stages import drop_stage, open_stage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from connectors.base import PartRecord, Sink
    from etl.core.schema import Schema
    from etl.engine.spool import SpoolFile
    from etl.planning.binding import Bound
    from etl.run.spool import Spooled

MOMENTS = "the sources are read at {} moments, one after the other: each connection has its own snapshot"
SPOOL = ".spool"
"""What the name of the hidden folder between passes has behind the run's; the next run removes one of a dead run."""


@contextmanager
def waiting(target: str, run_id: str, /) -> Iterator[Path]:
    """The folder in which rows wait for the next pass, beside the dataset or its local shadow; it goes at the end.

    Raises:
        DatasetError: It cannot be made.
    """
    place = place_of(target)
    folder = open_stage(place.shadow if isinstance(place, Place) else place, run_id + SPOOL)
    try:
        yield folder
    finally:
        drop_stage(folder)


def to(sink: Sink, name: str, /) -> Write:
    """Rows to a sink that is no dataset."""
    return Write(name, "parquet", WriteOptions(), sink=sink)


def last(bound: Bound, returns: Schema, spooled: Mapping[str, Spooled], files: Sequence[SpoolFile], /) -> Job:
    """The last pass: the rows that wait, to the dataset; its manifest names the stores."""
    name = f"result of {bound.pipeline.name}"
    records = [one.requires for one in spooled.values() if one.requires is not None]
    sources = tuple(s for one in records for s in one.sources)
    lineage = Lineage(
        sources,
        tuple(part for one in spooled.values() for part in parts_of(one)),
        (*_moments(spooled), *_said(spooled)),
    )
    reading = Reading(
        Endpoint(name, "spool"),
        Query(table=name),
        wish=CutWish(partitions=max(2, len(files))) if len(files) > 1 else CutWish(partitions=1),
        name=name,
        source=SpoolSource(name, tuple(files), returns),
    )
    return Job(reading, (bound.write,), retries=bound.pipeline.retries, of=lineage)


def parts_of(one: Spooled, /) -> tuple[PartRecord, ...]:
    """The parts of a source, with its name."""
    if one.requires is None:
        return ()
    return tuple(replace(part, source=one.requires.sources[0].name) for part in one.requires.parts)


def _said(spooled: Mapping[str, Spooled]) -> Iterable[Mapping[str, object]]:
    """Warnings of the sources, each with its source's name."""
    for name, one in spooled.items():
        for warning in one.requires.warnings if one.requires is not None else ():
            yield {**warning, "source": name, "text": f"{name}: {warning.get('text', '')}"}


def _moments(spooled: Mapping[str, Spooled]) -> Iterable[Mapping[str, object]]:
    """That the sources were not read at one moment, where they were not."""
    taken = {
        (s.snapshot.token, s.snapshot.taken_at): s
        for one in spooled.values()
        if one.requires is not None
        for s in one.requires.sources
    }
    if len(taken) > 1:
        moments = sorted(s.snapshot.taken_at for s in taken.values())
        apart = (moments[-1] - moments[0]).total_seconds()
        text = f"{MOMENTS.format(len(taken)).replace(' are ', ' were ')}, {apart:.3g} s from first to last"
        yield {"code": "snapshots", "count": len(taken), "text": text}
