"""Golden rows of a fit: some that it was fitted on, with what the steps made of them.

Any later code can prove by them that it makes the same. Only columns that serving asks for are kept: no keys and no
targets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from etl.core.errors import Damaged
from etl.transforms.asking import inputs_of
from etl.transforms.fit import applied, served
from etl.transforms.host import Rows
from etl.transforms.plain import table_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from etl.transforms.base import State
    from etl.transforms.fit import Planned

ROWS: Final = 32
_GIVEN, _MADE = "given.", "made."


def asked_columns(plan: Planned, wanted: Sequence[str], /) -> list[str]:
    """The columns of golden rows: those that serving asks for so that `wanted` come out."""
    return [one.field.name for one in inputs_of(served(plan, {}, wanted)[0], wanted)]


def with_results(plan: Planned, states: Mapping[int, State], golden: pa.Table, outputs: Sequence[str], /) -> pa.Table:
    """Golden rows with what the steps make of them in serving, as `given.<column>` and `made.<column>`.

    Args:
        plan: All steps.
        states: Their figures.
        golden: Rows before the first step, of the columns that serving asks for.
        outputs: The columns that serving gives.
    """
    kept, figures = served(plan, states, outputs)
    given = plan.given.select(golden.column_names)
    (batch,) = golden.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=golden.schema)]
    rows = applied(kept, figures, Rows.of_batch(batch, given))
    made = [one for one in plan.returns if one.name in outputs]
    arrays = rows.batch(type(plan.returns)(tuple(made))).columns
    names = [_GIVEN + name for name in golden.column_names] + [_MADE + one.name for one in made]
    return pa.table([*batch.columns, *arrays], names=names)


def golden_of(
    plan: str, hashes: Mapping[str, str], read: Callable[[str], bytes], /
) -> tuple[pa.Table, pa.Table] | None:
    """The golden rows of a fit, before and after the steps; None where there are none.

    Args:
        plan: Path of its `plan.json`.
        hashes: Path → SHA-256 of its files.
        read: The content of a file beside the plan, by name.

    Raises:
        Damaged: The file holds none.
    """
    names = [path.rpartition("/")[2] for path in hashes if path.startswith(plan.rpartition("/")[0] + "/golden.")]
    if not names:
        return None
    path = names[0]
    table = table_of(read(path))
    given = [name for name in table.column_names if name.startswith(_GIVEN)]
    made = [name for name in table.column_names if name.startswith(_MADE)]
    if not given or len(given) + len(made) != table.num_columns:
        raise Damaged(f"{path} holds no golden rows", path=path)
    before, after = table.select(given), table.select(made)
    return (
        before.rename_columns([name.removeprefix(_GIVEN) for name in given]),
        after.rename_columns([name.removeprefix(_MADE) for name in made]),
    )
