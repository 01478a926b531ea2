"""Steps on texts: one form of what is written in several."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etl.core.errors import ConfigError
from etl.core.schema import Schema
from etl.tensors.views import mask_of
from etl.transforms.base import InPlace, listed
from etl.transforms.host import Values
from etl.transforms.literals import column_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etl.transforms.base import State
    from etl.transforms.host import Rows

_ARROW: Final[Any] = pc
"""The stubs lack `utf8_normalize`."""
Form: TypeAlias = Literal["NFC", "NFD", "NFKC", "NFKD"]
_SPACES: Final = "".join(map(chr, [*range(9, 14), *range(28, 33), 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B)])) + (
    "\u2028\u2029\u202f\u205f\u3000"
)
"""White space as Python's `str.split` has it."""
_RUN: Final = r"[\t-\r\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]+"
_BEGIN: Final = {0xC2: (0x85, 0xA0), 0xE1: (0x9A,), 0xE2: (0x80, 0x81), 0xE3: (0x80,)}
"""The first bytes of white space beyond ASCII, and those that may follow."""
_FEW: Final = 8
"""Up to so many rows Python's own `split` is faster than Arrow's expressions."""


@dataclass(frozen=True, slots=True)
class TextNormalize(InPlace):
    """Texts in one form: normalized, lower, without white space around and in runs. NULL stays NULL, "" stays "".

    The same everywhere, whatever the locale: Unicode's normal forms; lower case by its simple mapping, character by
    character (İ becomes i, ß stays, a sigma has one small form wherever it stands); white space is what Python's
    `str.split` splits at.

    Attributes:
        columns: Their names: texts, labels.
        form: "NFC", "NFD", "NFKC", "NFKD", or None: as they are.
        lower: In lower case.
        strip: Without white space at both ends.
        collapse: One space for each run of white space.

    Raises:
        ConfigError: No column, or no such form.
    """

    kind: ClassVar[str] = "text_normalize"
    columns: tuple[str, ...]
    form: Form | None = "NFC"
    lower: bool = True
    strip: bool = True
    collapse: bool = True

    def __init__(
        self,
        columns: str | list[str] | tuple[str, ...],
        form: Form | None = "NFC",
        *,
        lower: bool = True,
        strip: bool = True,
        collapse: bool = True,
    ) -> None:
        object.__setattr__(self, "columns", listed(columns, "TextNormalize"))
        if form not in ("NFC", "NFD", "NFKC", "NFKD", None):
            raise ConfigError(f"TextNormalize: the form is {form!r}", hint='Give "NFC", "NFD", "NFKC", "NFKD" or None.')
        for name, value in (("form", form), ("lower", lower), ("strip", strip), ("collapse", collapse)):
            object.__setattr__(self, name, value)

    def output_schema(self, given: Schema, /) -> Schema:
        """The same columns as text; labels are no longer those that were declared."""
        given.require(*self.columns)
        for name in self.columns:
            kind: Any = given.field(name).type
            text = kind.value_type if pa.types.is_dictionary(kind) else kind
            if not (pa.types.is_string(text) or pa.types.is_large_string(text) or pa.types.is_string_view(text)):
                raise ConfigError(f"TextNormalize({name!r}): {name} is {kind}, not text", column=name)
        made = {
            n: replace(given.field(n), type=pa.string(), vocabulary=None, note="", metadata={}) for n in self.columns
        }
        return Schema(tuple(made.get(f.name, f) for f in given))

    def on_host(self, rows: Rows, given: Schema, state: State, /) -> Rows:
        """The rows with the texts in one form."""
        del given, state
        return rows.with_columns({name: Values(self._normal(rows[name].data)) for name in self.columns})

    def _normal(self, text: Any) -> Any:
        plain = _bytes(text)
        ascii_only = not len(plain) or int(plain.max()) < 128
        if ascii_only:
            text = pc.ascii_lower(text) if self.lower else text
        else:
            text = text if self.form is None else _ARROW.utf8_normalize(text, form=self.form)
            text = pc.utf8_lower(text) if self.lower else text
            if self.lower and self.form is not None:
                text = _ARROW.utf8_normalize(text, form=self.form)  # a lower letter may join what an upper one did not
        if self.collapse:
            text = _collapsed(text)
        if self.strip:
            text = pc.utf8_trim(text, characters=" " if self.collapse else _SPACES)
        return text


def _bytes(text: Any) -> NDArray[np.uint8]:
    """All texts one after another, in UTF-8."""
    offsets = _offsets(text)
    data = text.buffers()[2]
    if data is None or not len(text):
        return np.zeros(0, np.uint8)
    return np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]


def _offsets(text: Any) -> NDArray[Any]:
    """Where each text begins, and where the last ends, shape (n + 1,)."""
    kind = np.int64 if pa.types.is_large_string(text.type) else np.int32
    data = text.buffers()[1]
    if data is None:
        return np.zeros(len(text) + 1, kind)
    size = np.dtype(kind).itemsize
    return np.frombuffer(data, kind, count=len(text) + 1, offset=text.offset * size)


def _collapsed(text: Any) -> Any:
    """One space for each run of white space; only texts that have another are touched."""
    if len(text) <= _FEW:
        return column_of([None if one is None else _join(one) for one in text.to_pylist()], text.type).data
    plain = _bytes(text)
    odd = (plain - np.uint8(9) < 5) | (plain - np.uint8(28) < 4)
    space = plain == 32
    odd[1:] |= space[1:] & space[:-1]
    if int(plain.max(initial=0)) >= 128:
        for first, then in _BEGIN.items():
            begins = plain[:-1] == first
            if begins.any():
                odd[:-1] |= begins & np.isin(plain[1:], then)
    if not odd.any():
        return text
    offsets = _offsets(text)
    rows = np.searchsorted(offsets, np.flatnonzero(odd) + offsets[0], side="right") - 1
    mask = np.zeros(len(text), np.bool_)
    mask[rows] = True
    chosen = mask_of(mask)
    return pc.replace_with_mask(text, chosen, pc.replace_substring_regex(text.filter(chosen), _RUN, " "))


def _join(text: str) -> str:
    """The same of one text of Python's."""
    made = " ".join(text.split())
    if not made:
        return " " if text else ""
    return (" " if text[0].isspace() else "") + made + (" " if text[-1].isspace() else "")
