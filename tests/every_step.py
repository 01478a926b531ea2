"""One of each step on columns of its kind: what is true of all is tested on these.

`python -m tests.every_step FOLDER` writes a golden folder: the saved fit, rows, and what it makes of them.
"""

from __future__ import annotations

import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from etl.transforms import (
    Age,
    Apply,
    Bucketize,
    Cast,
    Categorify,
    Clip,
    CountEncode,
    Cyclic,
    DateParts,
    DecimalScale,
    DropNull,
    FillNull,
    Filter,
    GroupStats,
    HashBucket,
    HashCross,
    ListPad,
    ListPool,
    ListSlice,
    Log1p,
    MaxAbs,
    MinMax,
    MultiHot,
    NullIndicator,
    OneHot,
    Power,
    QuantileBins,
    Quantize,
    Rename,
    Robust,
    Select,
    Standardize,
    TargetEncode,
    TextNormalize,
    Winsorize,
)
from etl.transforms.fit import applied, served
from etl.transforms.host import Rows
from etl.transforms.preprocessor import built, figures_of, loaded, saved
from tests.preparing import fit

if TYPE_CHECKING:
    from collections.abc import Mapping

ROWS = 48


def rows(count: int = ROWS) -> pa.Table:
    """A table with a column of every kind; each but `id` and `y` has NULL in every seventh row."""
    places = range(count)

    def of(kind: Any, make: Any) -> Any:
        return pa.array([None if at % 7 == 3 else make(at) for at in places], kind)

    words = ["Ärger", "", "zoo ", "a\nb", "é"]
    return pa.table(
        {
            "id": pa.array(places, pa.int64()),
            "real": of(pa.float64(), lambda at: (at * 37 % 48) / 4 - 3),
            "whole": of(pa.int32(), lambda at: at * 31 % 17 - 5),
            "big": of(pa.int64(), lambda at: (1 << 60) + at),
            "money": of(pa.decimal128(9, 2), lambda at: Decimal(at * 13 % 29) / 100),
            "flag": of(pa.bool_(), lambda at: at % 3 == 0),
            "word": of(pa.string(), lambda at: words[at % 5]),
            "day": of(pa.date32(), lambda at: date(1969, 12, 1) + timedelta(days=at * 11)),
            "at": of(pa.timestamp("us", tz="UTC"), lambda at: datetime(2024, 2, 28, tzinfo=UTC) + timedelta(hours=at)),
            "tags": of(pa.list_(pa.string()), lambda at: [words[place % 5] for place in range(at % 4)]),
            "nums": of(pa.list_(pa.int64()), lambda at: list(range(at % 5))),
            "y": pa.array([at % 2 for at in places], pa.int64()),
        }
    )


def halved(columns: Mapping[str, Any], valid: Mapping[str, Any]) -> dict[str, Any]:
    """For Apply."""
    return {"half": (columns["real"] / 2, valid["real"])}


STEPS: list[Any] = [
    Age("at", "min", "hours", into="age"),
    Apply("tests.every_step:halved", ["real"], {"half": "float32"}),
    Bucketize("real", [-1, 0.5, Decimal("2.5")]),
    Cast("whole", "float32"),
    Categorify("word", min_count=2, oov_buckets=2),
    Clip("money", Decimal("0.05"), Decimal("0.20")),
    CountEncode("word", normalize=True),
    Cyclic("at", part="hour"),
    DateParts("day", ["year", "month", "week", "is_weekend"]),
    DecimalScale("money"),
    DropNull("flag"),
    FillNull(["real", "money"], "median"),
    FillNull("word", "mode"),
    FillNull("day", date(2024, 2, 29), indicator="no_day"),
    Filter("whole", ">=", 0),
    GroupStats("real", by="word", stats=["mean", "std", "count"]),
    HashBucket(["word", "whole"], 16, salt="s"),
    HashCross(["word", "flag"], 32, into="crossed"),
    ListPad("nums", 3),
    ListPool("nums", "mean"),
    ListSlice("nums", 0, 2),
    Log1p("big"),
    MaxAbs("real"),
    MinMax(["real", "big", "money"], low=-1.0, clip=True),
    MultiHot("tags"),
    NullIndicator("real"),
    OneHot("word", drop="first"),
    Power("real"),
    QuantileBins("real", 4),
    Quantize("real"),
    Rename({"word": "text"}),
    Robust(["real", "whole"]),
    Select(["real", "word"]),
    Standardize(["real", "whole", "big", "money", "flag"]),
    Standardize("real", by="word"),
    TargetEncode("word", target="y", fold_key="id", folds=3),
    TextNormalize("word"),
    Winsorize(["real", "money"], 0.1, 0.9),
]
"""Each is fitted and carried out alone."""


def write(folder: Path) -> None:
    """The golden folder: for each step its fit, and the rows after it."""
    table = rows()
    for number, step in enumerate(STEPS):
        if isinstance(step, Apply):
            continue  # its function may change, and is refused then
        place = folder / f"{number:02d}-{step.kind}"
        place.mkdir(parents=True)
        plan, states = fit([step], table, batch_rows=ROWS)
        made = saved(plan, states, features=[], split="all", rows=ROWS, versions={})
        for path, content in made.files.items():
            (place / path.rpartition("/")[2]).write_bytes(content)
        with pa.ipc.new_file(str(place / "made.arrow"), served_rows(plan, states, table).schema) as out:
            out.write_table(served_rows(plan, states, table))


def served_rows(plan: Any, states: Any, table: pa.Table) -> pa.Table:
    """What serving makes of rows."""
    kept, figures = served(plan, states, plan.returns.names)
    (batch,) = table.combine_chunks().to_batches()
    found = applied(kept, figures, Rows.of_batch(batch, plan.given))
    return pa.Table.from_batches([found.batch(plan.returns)])


def reopened(folder: Path, table: pa.Table) -> pa.Table:
    """What a golden fit makes of rows now."""
    from etl.transforms.fit import planned
    from tests.preparing import schema_of

    def read(name: str) -> bytes:
        return (folder / name).read_bytes()

    content = read("plan.json")
    steps = built(loaded(content, "plan.json", read))
    states = figures_of(content, steps, read=read)
    return served_rows(planned(steps, schema_of(table), states), states, table)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
