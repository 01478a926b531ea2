"""The one tree of errors: every exception that leaves cuETL descends from `EtlError`.

A message names what failed, on which thing, the store's own words and what to do; `str(error)` is that one
paragraph and is the same for every way in. Subclasses fix the exit code and whether another try can help.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Self, TypeAlias

RetryKind: TypeAlias = Literal["transient", "memory", "permanent"]
"""What another try of the same part can do: transient may pass, memory needs a smaller part, permanent never passes."""


class EtlError(Exception):
    """Something failed; the text is one paragraph for the user.

    Args:
        message: What failed, on which thing, in the store's own words.
        hint: What to do about it.
        **context: Facts about the place (connection, partition, column, key …) for machines to read.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1
    retry: ClassVar[RetryKind] = "permanent"

    def __init__(self, message: str, *, hint: str = "", **context: str | int) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.context: dict[str, str | int] = dict(context)

    def __str__(self) -> str:
        """The message and, where there is one, what to do."""
        if not self.hint:
            return self.message
        stop = "" if self.message.endswith((".", "!", "?")) else "."
        return f"{self.message}{stop} {self.hint}"

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by value, so that an error crosses from a worker with all it knows."""
        return _rebuild, (type(self), self.message, self.hint, self.context)

    def at(self, prefix: str, **context: str | int) -> Self:
        """The same error, said of a place: the prefix goes before the message, the context is added."""
        return type(self)(f"{prefix}: {self.message}", hint=self.hint, **{**self.context, **context})


def _rebuild(kind: type[EtlError], message: str, hint: str, context: dict[str, str | int]) -> EtlError:
    return kind(message, hint=hint, **context)


class ConfigError(EtlError):
    """The operator must change something before a row is read: command, configuration, names, query text."""

    code = "config"
    exit_code = 2


class MissingDriver(ConfigError):
    """A driver is not installed; the hint names the extra that brings it."""

    code = "missing_driver"


class DataError(EtlError):
    """The data is not what was declared."""

    code = "data"
    exit_code = 4


class SchemaError(DataError):
    """Columns or types differ from those declared."""

    code = "schema"


class CastError(DataError):
    """A value that `--cast`, `--special` or `--nulls` refuses."""

    code = "cast"
    exit_code = 1


class DecimalTooNarrow(CastError):
    """A numeric without declared precision holds a value wider than decimal128(38,18).

    The run measures the columns once in the same snapshot (`Source.widen`) and reads all parts again.
    """

    code = "decimal_too_narrow"


class CountMismatch(DataError):
    """Rows counted, read and written do not agree; nothing was published."""

    code = "count"


class CheckFailed(DataError):
    """A data check of severity "error" failed; nothing was published."""

    code = "check"


class StoreError(EtlError):
    """The store refused, or was lost."""

    code = "store"


class StoreUnavailable(StoreError):
    """The store could not be reached, dropped the connection or timed out: another try may pass."""

    code = "store_unavailable"
    retry = "transient"


class StoreRejected(StoreError):
    """The store understood and refused: bad query, missing table, missing right."""

    code = "store_rejected"


class SnapshotLost(StoreError):
    """The session that held the snapshot is gone: only a new snapshot can go on."""

    code = "snapshot_lost"


class EngineError(EtlError):
    """The engine failed or was lost."""

    code = "engine"


class WorkerLost(EngineError):
    """A worker died with a part in hand: the part is run again, as two halves where it was a frame."""

    code = "worker_lost"
    retry = "transient"


class DeviceOutOfMemory(EngineError):
    """A frame did not fit into memory, of a device or of the host: the part is halved, never tried again as it is."""

    code = "out_of_memory"
    retry = "memory"


class RunError(EtlError):
    """A run could not be carried through."""

    code = "run"


class PartlyFailed(RunError):
    """Some partitions failed after their retries; nothing was published."""

    code = "partly_failed"
    exit_code = 3


class Retry(RunError):
    """A pipeline's function asks that its part be tried again: `raise Retry(after=30)`.

    Args:
        message: Why, for the run's report.
        hint: What to do should every try end so.
        after: Seconds to wait before; None: as between all tries.
        **context: As of every error.
    """

    code = "retry"
    retry = "transient"

    def __init__(
        self,
        message: str = "the function asked for another try",
        *,
        hint: str = "",
        after: int | None = None,
        **context: str | int,
    ) -> None:
        super().__init__(message, hint=hint, **context)
        if after is not None:
            self.context["after"] = after


class UserCodeError(RunError):
    """A pipeline's function failed, or gave something that the plan did not expect.

    The message has the exception's own words, the user's file and line and the columns; `context["traceback"]` has
    everything, for `--debug`.
    """

    code = "user_code"


class Cancelled(RunError):
    """The run was stopped on request; nothing was published."""

    code = "cancelled"
    exit_code = 130


class DatasetError(EtlError):
    """A dataset could not be written, opened or changed."""

    code = "dataset"


class Damaged(DatasetError):
    """A dataset's files are not what its manifest says: file and both hashes are named."""

    code = "damaged"
    exit_code = 4


class CommitConflict(DatasetError):
    """Another run published first; both versions are named."""

    code = "commit_conflict"
