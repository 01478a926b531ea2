"""Numbers as small integers with one scale: a byte in place of four."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from etl.core.errors import ConfigError
from etl.transforms.base import listed
from etl.transforms.extremes import FromExtremes, known_extremes
from etl.transforms.figures import skipped_of
from etl.transforms.host import Values, floats_of
from etl.transforms.reals import CHUNK, check_numbers, mask_in, pieces, skip_or_error, with_types

if TYPE_CHECKING:
    from collections.abc import Mapping

    from etl.core.schema import Schema
    from etl.transforms.base import State
    from etl.transforms.host import Rows

MOST = 127


@dataclass(frozen=True, slots=True)
class Quantize(FromExtremes):
    """x becomes the nearest of 255 steps, int8: round(x / s), half to even, with s = the greatest |x| / 127.

    x is about the step times s, which the manifest has as `quant`. Values beyond become -127 or 127, and are counted as
    "clipped". NULL stays NULL; NaN is refused.

    Attributes:
        columns: Numbers.
        bits: 8.
        nan: "skip": NaN does not count in the fit; "error": it is refused there. A row with NaN is refused either way.

    Raises:
        ConfigError: No column, or a number of bits that there is not.
    """

    kind: ClassVar[str] = "quantize"
    fits: ClassVar[bool] = True
    knows_fills: ClassVar[bool] = True
    columns: tuple[str, ...]
    bits: int = 8
    nan: Literal["skip", "error"] = "skip"

    def __init__(
        self, columns: str | list[str] | tuple[str, ...], *, bits: int = 8, nan: Literal["skip", "error"] = "skip"
    ) -> None:
        object.__setattr__(self, "columns", listed(columns, "Quantize"))
        if bits != 8 or isinstance(bits, bool):
            raise ConfigError(f"Quantize: bits is {bits!r}", hint="There is 8.")
        object.__setattr__(self, "bits", 8)
        object.__setattr__(self, "nan", skip_or_error(nan, "Quantize"))

    def output_schema(self, given: Schema, /) -> Schema:
        """The same columns as int8."""
        check_numbers(given, self.columns, "Quantize")
        return with_types(given, self.columns, pa.int8())

    def finish(self, state: State, given: Schema, filled: Mapping[str, Any], /) -> State:
        """Column → scale."""
        found: dict[str, Any] = {}
        for name in self.columns:
            kind = given.field(name).type
            least, most = known_extremes("Quantize", name, state[name], kind, filled.get(name), self.nan)
            skipped = skipped_of(state[name], filled=name in filled)
            found[name] = {"scale": float(max(abs(least), abs(most))) / MOST, "skipped": skipped}
        return found

    def warnings(self, state: State, /) -> tuple[str, ...]:
        """Columns of zeros."""
        flat = [name for name in self.columns if state[name]["scale"] == 0.0]
        return tuple(f"all values of {n} that it was fitted on are 0: it is 0 after Quantize" for n in flat)

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows with steps."""
        del given
        with np.errstate(all="ignore"):
            return rows.with_columns({name: _steps(rows, name, state[name]["scale"]) for name in self.columns})

    def describes(self, column: str, state: State, named: Mapping[str, Any], /) -> Mapping[str, object]:
        """The manifest's `quant`."""
        del named
        return {"quant": {"scale": state[column]["scale"], "bits": self.bits}}


def _steps(rows: Rows, name: str, scale: float) -> Values:
    column = rows[name]
    made, clipped = np.zeros(len(column), np.int8), 0
    for start, piece in pieces(column):
        wide = floats_of(piece)
        steps = np.rint(wide / scale) if scale else np.where(np.isfinite(wide), 0.0, wide)
        inside = (steps >= -MOST) & (steps <= MOST)
        lost = len(steps) - np.count_nonzero(inside)
        if lost:
            beyond = ~inside & piece.present
            odd = beyond & np.isnan(wide)
            if odd.any():
                row = start + int(odd.argmax())
                raise rows.refused(
                    name, row, "NaN is no step", hint="Clear it in the function with frames.nan_to_null."
                )
            clipped += int(np.count_nonzero(beyond))
            steps = np.clip(np.nan_to_num(steps), -MOST, MOST)
        made[start : start + CHUNK] = steps
    rows.counted(name, "clipped", clipped)
    return Values(made, mask_in(column))
