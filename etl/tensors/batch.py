"""A batch of rows: a mapping from tensor name to array, as the framework wants it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from etl.core.errors import ConfigError
from etl.core.schema import nearest
from etl.tensors.frameworks import framework_of, hand_over, nested

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Batch(Mapping[str, Any]):
    """Rows by tensor name: `batch["x"]`. The same names and dtypes whatever the values, rows or NULLs.

    A ragged list is two tensors, `<tag>.values` [N] and `<tag>.offsets` [rows + 1] int64. Its memory is its own: it is
    not overwritten while somebody refers to it.

    Attributes:
        arrays: Name → NumPy array on the host; bfloat16 as uint16 bits.
        dtypes: Name → dtype in words, as the schema says.
        framework: Whose objects `batch[name]` gives.
        device: Where they lie, as `hand_over`.
        handed: Name → the framework's object.
    """

    arrays: Mapping[str, NDArray[Any]]
    dtypes: Mapping[str, str]
    framework: str
    device: str | None
    handed: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        arrays: Mapping[str, NDArray[Any]],
        /,
        *,
        framework: str | None = None,
        device: str | None = None,
        dtypes: Mapping[str, str] | None = None,
    ) -> Self:
        """The batch of these arrays, which it takes as its own, handed over at once.

        Args:
            arrays: Name → array; the rows of all are the same, but of `<tag>.values`.
            framework: As `hand_over`; None: NumPy without a device, torch with one.
            device: As `hand_over`.
            dtypes: Name → dtype where it is another than the array's: "bfloat16" for uint16 bits.

        Raises:
            ConfigError, MissingDriver, CastError: As `hand_over`.
        """
        chosen = framework_of(framework, device)
        words = {name: (dtypes or {}).get(name) or array.dtype.name for name, array in arrays.items()}
        handed = {name: hand_over(a, chosen, device, dtype=words[name], name=name) for name, a in arrays.items()}
        return cls(arrays, words, chosen, device, handed)

    def __getitem__(self, name: str, /) -> Any:
        """The tensor as the framework's own object."""
        return self.handed[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.handed)

    def __len__(self) -> int:
        return len(self.handed)

    def __eq__(self, other: object, /) -> bool:
        """Batches are the same or not: arrays have no one answer to whether they are equal."""
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        shown = ", ".join(f"{n} {list(a.shape)} {self.dtypes[n]}" for n, a in self.arrays.items())
        return f"Batch({shown}; {self.framework}{f' on {self.device}' if self.device else ''})"

    def numpy(self, name: str, /) -> NDArray[Any]:
        """The tensor on the host; bfloat16 as `ml_dtypes.bfloat16` where that package is, else as uint16 bits.

        On the host it shares memory with `batch[name]`.
        """
        found: NDArray[Any] = hand_over(self.arrays[name], "numpy", None, dtype=self.dtypes[name])
        return found

    def dlpack(self, name: str, /) -> Any:
        """An object with `__dlpack__` and `__dlpack_device__`, C-contiguous and aligned to its item at least.

        It is the framework's own where that speaks DLPack, else the array on the host.
        """
        own = self.handed[name]
        return own if hasattr(own, "__dlpack_device__") else self.arrays[name]

    def padded(self, tag: str, /, max_len: int | None = None, pad_value: float = 0) -> Any:
        """A ragged list as a matrix [rows, max_len]: each list from the left, then `pad_value`.

        Args:
            tag: The list's name.
            max_len: Columns; lists that are longer are cut. None: the longest list of this batch.
            pad_value: What follows a list; exact in the list's dtype.

        Raises:
            ConfigError: There is no such list, or its dtype does not hold `pad_value`.
        """
        values, offsets = self._ragged(tag)
        width = max_len if max_len is not None else int(np.diff(offsets).max(initial=0))
        if width < 0:
            raise ConfigError(f"max_len is {width}", hint="Name 0 or more.")
        dtype = self.dtypes[f"{tag}.values"]
        out = np.full((len(offsets) - 1, width), _padding(pad_value, dtype, tag), values.dtype)
        lengths = np.minimum(np.diff(offsets), width)
        inside = np.arange(width) < lengths[:, None]
        # Row by row from the left, as the mask is walked: the n-th item kept of row r is values[offsets[r] + n].
        out[inside] = values[(offsets[:-1, None] + np.arange(width))[inside]]
        return hand_over(out, self.framework, self.device, dtype=dtype, name=tag)

    def nested(self, tag: str, /) -> Any:
        """A ragged list as a torch nested tensor of jagged layout; nothing is copied.

        Raises:
            ConfigError: There is no such list, or the batch is of another framework.
        """
        self._ragged(tag)
        if self.framework != "torch":
            raise ConfigError(
                f"nested tensors are torch's, and this batch is {self.framework}'s",
                hint="Ask for framework='torch', or take padded().",
            )
        return nested(self.handed[f"{tag}.values"], self.handed[f"{tag}.offsets"])

    def _ragged(self, tag: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
        try:
            return self.arrays[f"{tag}.values"], self.arrays[f"{tag}.offsets"]
        except KeyError:
            lists = [n.removesuffix(".offsets") for n in self.arrays if n.endswith(".offsets")]
            raise ConfigError(
                f"the batch has no list {tag}", hint=nearest(tag, lists, what="lists") if lists else "It has no lists."
            ) from None


def _padding(value: float, dtype: str, tag: str) -> Any:
    """The value as an item of the list's dtype; bfloat16 as uint16 bits.

    Raises:
        ConfigError: The dtype does not hold it.
    """
    if dtype == "bfloat16":
        bits = int(np.float32(value).view(np.uint32))
        if float(np.float32(value)) == value and not bits & 0xFFFF:
            return np.uint16(bits >> 16)
    else:
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                item = np.array(value).astype(dtype)
        except (OverflowError, ValueError):
            item = np.zeros((), dtype)
        if item == value or (value != value and item != item):  # noqa: PLR0124 - NaN
            return item
    raise ConfigError(f"pad_value {value!r} is not exact in {dtype}, the dtype of {tag}", hint="Choose another.")
