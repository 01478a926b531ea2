"""The columns that a function gives, found by calling it with a frame of no rows before anything is read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from etl.core.errors import EtlError
from etl.engine.backends import backend
from etl.planning.calling import called, defined_at
from etl.transforms.fit import planned

if TYPE_CHECKING:
    from etl.core.schema import Schema
    from etl.planning.steps import Steps


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of it.

    Attributes:
        steps: With both schemas.
        warnings: What the user should know of the function, in sentences.
    """

    steps: Steps
    warnings: tuple[str, ...]


def tried(steps: Steps, given: Schema, /) -> Trial:
    """The steps with the columns that go in, that the function gives, and that come out.

    The run process makes no frame on a device, so the trial is pandas' also where the run is cuDF's.

    Raises:
        UserCodeError: The function fails without rows, or gives no frame.
        SchemaError: A column has no place in a frame, or comes out as something that has no Arrow type.
        EtlError: A step after the function does not take the columns before it.
    """
    made, said = _made(steps, given)
    returns = planned(steps.prepare, made).returns if steps.prepare else made
    return Trial(replace(steps, given=given, made=made, returns=returns), said)


def _made(steps: Steps, given: Schema) -> tuple[Schema, tuple[str, ...]]:
    """What the function gives, and what the user should know of it."""
    ref = steps.function
    if ref is None:
        return given, ()
    frames = backend("pandas")
    frame = frames.from_arrow(given.to_arrow().empty_table(), given)
    try:
        result, said = called(ref, frame)
    except EtlError as error:
        if "line" in error.context:
            error.hint = " ".join(filter(None, (error.hint, "It was called with no rows, to learn its columns.")))
        raise
    try:
        return frames.schema_of(result, given), tuple(said)
    except EtlError as error:
        raise error.at(defined_at(ref)) from error


def schema_through(steps: Steps, given: Schema, /) -> Schema:
    """The columns that the steps give for these.

    Raises:
        EtlError: As `tried`.
    """
    return tried(steps, given).steps.returns
