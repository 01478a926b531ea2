"""The life of a run, pure: from what happened to what to do next.

`step` decides everything about tries, waits, budgets and ends; `runner` carries the effects out and decides nothing.
Rules: a part has `retries` more tries after its first; all parts of a run together have `max(10, 20 %)`; a lost
snapshot restarts the run on a new one at most twice; a failure that another try cannot mend ends the run at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from etl.core.errors import Retry

RETRIES = 3
MAX_RESTARTS = 2
MAX_WAIT_SECONDS = 300.0
FIRST_WAIT_SECONDS = 2.0

Phase: TypeAlias = Literal["running", "publishing", "succeeded", "failed", "cancelled"]
PartKey: TypeAlias = tuple[int, int]
"""(job, part index) within one run."""


@dataclass(frozen=True, slots=True)
class PartState:
    """One part: its state, and how often it was tried."""

    state: Literal["waiting", "running", "retrying", "staged", "failed"] = "waiting"
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """A run as a value."""

    id: str
    phase: Phase = "running"
    slots: int = 1
    parts: Mapping[PartKey, PartState] = field(default_factory=dict)
    retries_used: int = 0
    restarts: int = 0

    def in_flight(self) -> int:
        """Parts that hold a slot."""
        return sum(p.state == "running" for p in self.parts.values())


@dataclass(frozen=True, slots=True)
class Planned:
    """The parts are known (again, after a restart); earlier parts are forgotten, the budget used is not."""

    keys: tuple[PartKey, ...]
    slots: int


@dataclass(frozen=True, slots=True)
class PartStaged:
    """An attempt ended well."""

    key: PartKey
    attempt: int


@dataclass(frozen=True, slots=True)
class PartBroke:
    """An attempt ended badly; `kind` is the class of its error."""

    key: PartKey
    attempt: int
    kind: Retry
    snapshot_lost: bool = False


@dataclass(frozen=True, slots=True)
class SnapshotGone:
    """The snapshot was lost outside of a part: while it was planned or counted."""


@dataclass(frozen=True, slots=True)
class WaitOver:
    """The wait before another try has passed."""

    key: PartKey


@dataclass(frozen=True, slots=True)
class StopAsked:
    """Somebody wants the run to end."""


@dataclass(frozen=True, slots=True)
class WasPublished:
    """The commit is done."""


Event: TypeAlias = Planned | PartStaged | PartBroke | SnapshotGone | WaitOver | StopAsked | WasPublished


@dataclass(frozen=True, slots=True)
class Submit:
    """Start an attempt at a part."""

    key: PartKey
    attempt: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait a random time up to `at_most` seconds, then send `WaitOver`."""

    key: PartKey
    at_most: float


@dataclass(frozen=True, slots=True)
class Restart:
    """Let everything go and begin again on a new snapshot."""


@dataclass(frozen=True, slots=True)
class Publish:
    """All parts are staged."""


@dataclass(frozen=True, slots=True)
class Fail:
    """End the run with the last error of this part; `why` adds what the state knows."""

    key: PartKey
    why: str


@dataclass(frozen=True, slots=True)
class Stop:
    """End the run as cancelled."""


Effect: TypeAlias = Submit | Wait | Restart | Publish | Fail | Stop


def budget(parts: int, /) -> int:
    """Retries that all parts of a run may use together."""
    return max(10, parts // 5)


def waits() -> tuple[float, ...]:
    """The longest waits before the second try, the third …, of a part or of a count."""
    return tuple(min(MAX_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2**n) for n in range(RETRIES))


def step(run: Run, event: Event, /) -> tuple[Run, tuple[Effect, ...]]:
    """The run after the event, and what to do now. A final phase never changes."""
    if run.phase in ("succeeded", "failed", "cancelled"):
        return run, ()
    match event:
        case Planned(keys, slots):
            parts = {key: PartState() for key in keys}
            return _fill(replace(run, parts=parts, slots=slots))
        case StopAsked():
            return replace(run, phase="cancelled"), (Stop(),)
        case WasPublished():
            return replace(run, phase="succeeded"), ()
        case SnapshotGone():
            if run.restarts < MAX_RESTARTS:
                return replace(run, phase="running", restarts=run.restarts + 1, parts={}), (Restart(),)
            return replace(run, phase="failed"), ()
        case WaitOver(key):
            return _fill(_set(run, key, state="waiting"))
        case PartStaged(key, attempt):
            if not _current(run, key, attempt):
                return run, ()
            run = _set(run, key, state="staged")
            if all(p.state == "staged" for p in run.parts.values()):
                return replace(run, phase="publishing"), (Publish(),)
            return _fill(run)
        case PartBroke(key, attempt, kind, snapshot_lost):
            if not _current(run, key, attempt):
                return run, ()
            return _broke(run, key, kind, snapshot_lost=snapshot_lost)


def _broke(run: Run, key: PartKey, kind: Retry, *, snapshot_lost: bool) -> tuple[Run, tuple[Effect, ...]]:
    if snapshot_lost:
        if run.restarts < MAX_RESTARTS:
            return replace(run, restarts=run.restarts + 1, parts={}), (Restart(),)
        return _fail(run, key, f"the snapshot was lost {MAX_RESTARTS + 1} times")
    attempts = run.parts[key].attempts
    if kind != "transient":
        return _fail(run, key, "")
    if attempts > RETRIES:
        return _fail(run, key, f"given up after {attempts} attempts")
    if run.retries_used >= budget(len(run.parts)):
        return _fail(run, key, f"the run's budget of {budget(len(run.parts))} retries is used up")
    run = replace(_set(run, key, state="retrying"), retries_used=run.retries_used + 1)
    run, more = _fill(run)
    return run, (Wait(key, waits()[attempts - 1]), *more)


def _fail(run: Run, key: PartKey, why: str) -> tuple[Run, tuple[Effect, ...]]:
    return replace(_set(run, key, state="failed"), phase="failed"), (Fail(key, why),)


def _current(run: Run, key: PartKey, attempt: int) -> bool:
    part = run.parts.get(key)
    return part is not None and part.state == "running" and part.attempts == attempt


def _set(run: Run, key: PartKey, *, state: Literal["waiting", "running", "retrying", "staged", "failed"]) -> Run:
    return replace(run, parts={**run.parts, key: replace(run.parts[key], state=state)})


def _fill(run: Run) -> tuple[Run, tuple[Effect, ...]]:
    """Give free slots to waiting parts, in order."""
    free = run.slots - run.in_flight()
    effects: list[Effect] = []
    parts = dict(run.parts)
    for key, part in run.parts.items():
        if free <= 0:
            break
        if part.state == "waiting":
            parts[key] = PartState("running", part.attempts + 1)
            effects.append(Submit(key, part.attempts + 1))
            free -= 1
    return replace(run, parts=parts), tuple(effects)
