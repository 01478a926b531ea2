"""The columns that a function gives, found by calling it with a frame of no rows before anything is read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from etl.core.errors import EtlError, SchemaError
from etl.engine.backends import backend
from etl.planning.calling import called, defined_at
from etl.transforms.fit import planned

if TYPE_CHECKING:
    from collections.abc import Mapping

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
        EtlError: A step after the function does not take the columns before it, or was fitted on others.
    """
    made, said = _made(steps, given)
    if steps.expects is not None:
        check_expected(steps.expects, made)
    returns = planned(steps.prepare, made, steps.figures).returns if steps.prepare else made
    return Trial(replace(steps, given=given, made=made, returns=returns), said)


def check_expected(expects: Mapping[str, str], made: Schema, /) -> None:
    """Hold that rows have the columns that the steps were fitted on.

    Raises:
        SchemaError: They have others; each is named, with both types.
    """
    found = [f"{name} is missing" for name in expects if name not in made.names]
    found += [f"{name} is new" for name in made.names if name not in expects]
    found += [
        f"{one.name} is {one.type}, in the fit {expects[one.name]}"
        for one in made
        if expects.get(one.name, str(one.type)) != str(one.type)
    ]
    if found:
        raise SchemaError(
            f"the rows have other columns than those that the dataset's fit was made from: {'; '.join(found)}",
            hint='Append rows of the same columns and types, or make a new fit with mode="replace".',
        )


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
