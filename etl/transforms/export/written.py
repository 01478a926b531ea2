"""A proved model on disk, and the proof beside it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etl.core.canonical import canonical_json
from etl.core.errors import ConfigError
from etl.transforms.export.model import exported
from etl.transforms.export.parity import proved

if TYPE_CHECKING:
    from etl.transforms.serving import Preprocessor

PARITY: Final = "parity.json"


def write(prep: Preprocessor, path: str | os.PathLike[str], /) -> dict[str, object]:
    """Write a fit as an ONNX model, once it is proved to give what the fit gives; gives what `parity.json` records.

    Args:
        prep: The fit.
        path: Of the model; `parity.json` is written beside it.

    Raises:
        ConfigError: Steps or columns have no ONNX form, all of which are named; or ONNX is not installed; or there is
            no such folder. No file is written.
        DataError: The model differs from the fit; no file is written.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise ConfigError(f"there is no folder {target.parent}", hint="Make it first.")
    return write_proved(prep, exported(prep), target)


def write_proved(prep: Preprocessor, model: bytes, target: Path, /) -> dict[str, object]:
    """Write a model that gives what a fit gives, and `parity.json`; gives what that records.

    Raises:
        DataError: It gives something else; no file is written.
    """
    record = {"model": target.name, **proved(prep, model)}
    # The proof comes first: a model without one was never complete.
    for place, content in ((target.with_name(PARITY), canonical_json(record)), (target, model)):
        half = place.with_name(f".{place.name}.{os.getpid()}")
        try:
            half.write_bytes(content)
            half.replace(place)
        finally:
            half.unlink(missing_ok=True)
    return record
