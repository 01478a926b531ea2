"""What a sink asks of the rows that it is about to publish: watched part by part, judged before the switch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from etl.core.errors import CheckFailed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    import pyarrow as pa

    from connectors.base import Staged
    from etl.core.schema import Schema

Severity: TypeAlias = Literal["error", "warn"]
SAMPLE = 10
"""Keys of offending rows that are kept at most; never whole rows."""
_TOLD = 3
"""Keys that a message names."""


@dataclass(frozen=True, slots=True)
class Ending:
    """What is known of a version when its rows are all there, and before anybody can see it.

    Attributes:
        rows: Of this run.
        last: Rows of the version before: those that it brought where rows are appended, else all; None: there is none.
        now: The moment, in UTC.
        document: Of the manifest: `columns`, `given` and `fit` of this run's rows.
        before: The manifest of the version before; None: there is none.
    """

    rows: int
    last: int | None
    now: datetime
    document: Mapping[str, Any] = field(default_factory=dict)
    before: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one check, as the manifest lists it.

    Attributes:
        name: The check with its columns.
        passed: Whether the rows are as declared.
        severity: "error": nothing is published; "warn": it is shown.
        limit: What was declared, of JSON values.
        observed: What was found, of JSON values.
        rows: Rows that offend; None where the check is of no single row.
        sample: Keys of some of them, by column; without keys their part and the row in it.
        said: What was found, in words.
    """

    name: str
    passed: bool
    severity: Severity
    limit: object
    observed: object
    rows: int | None = None
    sample: tuple[Mapping[str, object], ...] = field(default=())
    said: str = ""

    def as_json(self) -> dict[str, object]:
        """One object of `checks[]`."""
        return {
            "name": self.name,
            "passed": self.passed,
            "severity": self.severity,
            "limit": self.limit,
            "observed": self.observed,
            "rows": self.rows,
            "sample": [dict(one) for one in self.sample],
        }

    def __str__(self) -> str:
        told = "; ".join(", ".join(f"{k} = {v}" for k, v in one.items()) for one in self.sample[:_TOLD])
        more = "; …" if len(self.sample) > _TOLD else ""
        return f"{self.name}: {self.said}{f' ({told}{more})' if told else ''}"


class Watch(Protocol):
    """Sees the rows of one part as they are written; keeps no rows, but keys of a few."""

    def take(self, rows: pa.RecordBatch, /) -> None:
        """The next rows that will be published."""
        ...

    def facts(self) -> Mapping[str, object]:
        """What was seen, of values that `run.plain` has a form for."""
        ...


class RowChecks(Protocol):
    """All checks of a dataset; a picklable value."""

    def refuse(self, schema: Schema, /) -> None:
        """Refuse before a row is read what no row could answer.

        Raises:
            ConfigError: A check is of a column that is not there, or of another type.
        """
        ...

    def watch(self, schema: Schema, keys: Sequence[str], part: int, /) -> Watch:
        """For one part, whose sample names rows by these columns."""
        ...

    def judged(self, facts: Sequence[Mapping[str, object]], ending: Ending, /) -> Sequence[Verdict]:
        """What the parts saw, in their order, against what was declared."""
        ...


def verdicts(checks: RowChecks | None, staged: Sequence[Staged], ending: Ending, target: str, /) -> tuple[Verdict, ...]:
    """What came of every check; failed ones of severity "warn" are among them.

    Raises:
        CheckFailed: One of severity "error" failed; nothing may be published.
    """
    if checks is None:
        return ()
    found = tuple(checks.judged([one.checked for one in staged], ending))
    failed = [one for one in found if not one.passed and one.severity == "error"]
    if not failed:
        return found
    count = f"{len(failed)} checks" if len(failed) > 1 else "a check"
    raise CheckFailed(
        f"{count} of {target} failed, nothing was published: {'. '.join(map(str, failed))}",
        hint='Correct the rows or the check; severity="warn" shows a check that fails and publishes.',
        check=failed[0].name,
        rows=-1 if failed[0].rows is None else failed[0].rows,
    )


def told(found: Sequence[Verdict], /) -> tuple[Mapping[str, object], ...]:
    """Warnings of the checks that failed and stop nothing."""
    return tuple(
        {"code": "check", "text": str(one), **({} if one.rows is None else {"count": one.rows})}
        for one in found
        if not one.passed
    )
