"""The life of a run, pure: from what happened to what to do next.

`step` decides everything about tries, waits, budgets and ends; `runner` carries the effects out and decides nothing.
Rules: a part has `retries` more tries after its first; all parts of a run together have `max(10, 20 %)`; a lost
snapshot restarts the run on a new one at most twice; a part that memory could not hold is halved, down to a sixteenth,
and never tried again as it is; one whose worker died over its frame is halved as long as it can be, then tried again
as any other, since not every death is for want of memory; a failure that another try cannot mend ends the run at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from etl.planning.jobs import RETRIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from etl.core.errors import RetryKind

MAX_RESTARTS = 2
MAX_HALVINGS = 4
"""Down to 1/16 of a part."""
MAX_WAIT_SECONDS = 300.0
FIRST_WAIT_SECONDS = 2.0

Phase: TypeAlias = Literal["running", "finishing", "publishing", "succeeded", "failed", "cancelled"]
PartPhase: TypeAlias = Literal["waiting", "running", "retrying", "halving", "staged", "failed"]
PartKey: TypeAlias = tuple[int, int]
"""(job, part index) within one run."""
PieceKey: TypeAlias = tuple[int, int, int]
"""(job, dataset of the job, number): a piece of the work that is left when all parts are staged."""
WorkKey: TypeAlias = PartKey | PieceKey


@dataclass(frozen=True, slots=True)
class PartState:
    """One part or piece: its state, and how often it was tried."""

    state: PartPhase = "waiting"
    attempts: int = 0
    halvings: int = 0
    """How often what it was a half of was halved."""
    fallback: bool = False
    """Whether its frames are made on the CPU, since it was too large for the device in every size."""
    died: bool = False
    """Whether its last worker died over it."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run as a value."""

    id: str
    phase: Phase = "running"
    slots: int = 1
    parts: Mapping[WorkKey, PartState] = field(default_factory=dict)
    retries_used: int = 0
    restarts: int = 0
    finishes: bool = False
    retries: int = RETRIES
    cpu_fallback: bool = False

    def in_flight(self) -> int:
        """Parts that hold a slot."""
        return sum(p.state == "running" for p in self.parts.values())


@dataclass(frozen=True, slots=True)
class Planned:
    """The parts are known (again, after a restart); earlier parts are forgotten, the budget used is not."""

    keys: tuple[PartKey, ...]
    slots: int
    finishes: bool = False
    """Whether work is left when all parts are staged, to be found then."""
    done: frozenset[PartKey] = frozenset()
    """Those that an earlier run has staged already."""
    cpu_fallback: bool = False
    """Whether frames are made on a device, and a part that is too large for it may be made on the CPU."""


@dataclass(frozen=True, slots=True)
class PartStaged:
    """An attempt ended well."""

    key: WorkKey
    attempt: int


@dataclass(frozen=True, slots=True)
class PartBroke:
    """An attempt ended badly; `kind` is the class of its error."""

    key: WorkKey
    attempt: int
    kind: RetryKind
    snapshot_lost: bool = False
    after: float | None = None
    """Seconds that the error asked to wait before another try."""
    died: bool = False
    """Its worker died while it held the part as a frame: killed by the kernel, most likely."""


@dataclass(frozen=True, slots=True)
class PartHalved:
    """The part that was to be halved is these two; none: it cannot be."""

    key: PartKey
    halves: tuple[PartKey, ...]


@dataclass(frozen=True, slots=True)
class SnapshotGone:
    """The snapshot was lost outside of a part: while it was planned or counted."""


@dataclass(frozen=True, slots=True)
class PiecesKnown:
    """The work that is left after all parts, piece by piece; it goes by the rules of parts."""

    keys: tuple[PieceKey, ...]


@dataclass(frozen=True, slots=True)
class WaitOver:
    """The wait before another try has passed."""

    key: WorkKey


@dataclass(frozen=True, slots=True)
class StopAsked:
    """Somebody wants the run to end."""


@dataclass(frozen=True, slots=True)
class WasPublished:
    """The commit is done."""


Event: TypeAlias = (
    Planned | PartStaged | PartBroke | PartHalved | PiecesKnown | SnapshotGone | WaitOver | StopAsked | WasPublished
)


@dataclass(frozen=True, slots=True)
class Submit:
    """Start an attempt at a part or piece."""

    key: WorkKey
    attempt: int
    fallback: bool = False
    """On the CPU, whatever the run's engine."""


@dataclass(frozen=True, slots=True)
class Halve:
    """Cut a part in two, then send `PartHalved`."""

    key: PartKey


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait a random time up to `at_most` seconds, then send `WaitOver`."""

    key: WorkKey
    at_most: float
    at_least: float = 0.0


@dataclass(frozen=True, slots=True)
class Restart:
    """Let everything go and begin again on a new snapshot."""


@dataclass(frozen=True, slots=True)
class Finish:
    """All parts are staged: find the work that is left, then send `PiecesKnown`."""


@dataclass(frozen=True, slots=True)
class Publish:
    """All parts are staged, and nothing is left to do."""


@dataclass(frozen=True, slots=True)
class Fail:
    """End the run with the last error of this part; `why` adds what the state knows."""

    key: WorkKey
    why: str


@dataclass(frozen=True, slots=True)
class Stop:
    """End the run as cancelled."""


Effect: TypeAlias = Submit | Halve | Wait | Restart | Finish | Publish | Fail | Stop


def budget(parts: int, /) -> int:
    """Retries that all parts of a run may use together."""
    return max(10, parts // 5)


def waits(retries: int = RETRIES) -> tuple[float, ...]:
    """The longest waits before the second try, the third …, of a part or of a count."""
    return tuple(min(MAX_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2**n) for n in range(retries))


def step(run: Run, event: Event, /) -> tuple[Run, tuple[Effect, ...]]:
    """The run after the event, and what to do now. A final phase never changes."""
    if run.phase in ("succeeded", "failed", "cancelled"):
        return run, ()
    match event:
        case Planned(keys, slots, finishes, done, fallback):
            parts: dict[WorkKey, PartState] = {k: PartState("staged" if k in done else "waiting") for k in keys}
            run = replace(run, parts=parts, slots=slots, finishes=finishes, cpu_fallback=fallback)
            return _go_on(run) if done else _fill(run)
        case PiecesKnown(keys=pieces):
            if run.phase != "finishing":
                return run, ()
            return _go_on(replace(run, parts={**run.parts, **{key: PartState() for key in pieces}}))
        case StopAsked():
            return replace(run, phase="cancelled"), (Stop(),)
        case WasPublished():
            return replace(run, phase="succeeded"), ()
        case SnapshotGone():
            if run.restarts < MAX_RESTARTS:
                return replace(run, phase="running", restarts=run.restarts + 1, parts={}), (Restart(),)
            return replace(run, phase="failed"), ()
        case WaitOver(key):
            return _fill(_with(run, key, state="waiting"))
        case PartStaged(key, attempt):
            if not _current(run, key, attempt):
                return run, ()
            return _go_on(_with(run, key, state="staged"))
        case PartBroke(key, attempt, kind, snapshot_lost, after, died):
            if not _current(run, key, attempt):
                return run, ()
            if len(key) == 2:
                run = _with(run, key, died=died)
            return _broke(run, key, kind, snapshot_lost=snapshot_lost, after=after)
        case PartHalved(key, halves):
            if key not in run.parts or run.parts[key].state != "halving":
                return run, ()
            return _halved(run, key, halves)


def _go_on(run: Run) -> tuple[Run, tuple[Effect, ...]]:
    """Fill the slots; after the last part find what is left to do, after the last of that publish."""
    if any(p.state != "staged" for p in run.parts.values()):
        return _fill(run)
    if run.phase == "running" and run.finishes:
        return replace(run, phase="finishing"), (Finish(),)
    return replace(run, phase="publishing"), (Publish(),)


def _broke(
    run: Run, key: WorkKey, kind: RetryKind, *, snapshot_lost: bool, after: float | None
) -> tuple[Run, tuple[Effect, ...]]:
    if snapshot_lost:
        if run.restarts < MAX_RESTARTS:
            return replace(run, phase="running", restarts=run.restarts + 1, parts={}), (Restart(),)
        return _fail(run, key, f"the snapshot was lost {MAX_RESTARTS + 1} times")
    part = run.parts[key]
    if kind == "memory" and len(key) == 2:
        return _too_large(run, key)
    if kind != "transient":
        return _fail(run, key, "")
    if part.died and part.halvings < MAX_HALVINGS and len(key) == 2 and run.retries_used < budget(len(run.parts)):
        # A crash that is no want of memory would kill a worker for every half, so it counts as a retry of the run.
        return replace(_with(run, key, state="halving"), retries_used=run.retries_used + 1), (Halve(key),)
    return _again(run, key, after)


def _again(run: Run, key: WorkKey, after: float | None) -> tuple[Run, tuple[Effect, ...]]:
    """Another try at a part as it is, as long as it has one and the run has."""
    attempts = run.parts[key].attempts
    if attempts > run.retries:
        return _fail(run, key, f"given up after {attempts} attempt{'s' * (attempts > 1)}")
    if run.retries_used >= budget(len(run.parts)):
        return _fail(run, key, f"the run's budget of {budget(len(run.parts))} retries is used up")
    run = replace(_with(run, key, state="retrying"), retries_used=run.retries_used + 1)
    run, more = _fill(run)
    wait = Wait(key, waits(run.retries)[attempts - 1]) if after is None else Wait(key, after, after)
    return run, (wait, *more)


def _too_large(run: Run, key: PartKey) -> tuple[Run, tuple[Effect, ...]]:
    """Halve a part; one that is a sixteenth already goes to the CPU where that is allowed, else it is the end."""
    part = run.parts[key]
    if part.fallback:
        return _fail(run, key, "too large for the CPU, too")
    if part.halvings < MAX_HALVINGS:
        return _with(run, key, state="halving"), (Halve(key),)
    return _elsewhere(run, key, f"too large even as 1/{2**MAX_HALVINGS} of the part that was planned")


def _halved(run: Run, key: PartKey, halves: tuple[PartKey, ...]) -> tuple[Run, tuple[Effect, ...]]:
    """Put two parts in the place of one, so that rows stay in their order."""
    if not halves and run.parts[key].died:
        return _again(run, key, None)
    if not halves:
        return _elsewhere(run, key, "and it cannot be halved")
    parts: dict[WorkKey, PartState] = {}
    for one, part in run.parts.items():
        if one == key:
            parts.update(dict.fromkeys(halves, PartState(halvings=part.halvings + 1)))
        else:
            parts[one] = part
    return _fill(replace(run, parts=parts))


def _elsewhere(run: Run, key: PartKey, why: str) -> tuple[Run, tuple[Effect, ...]]:
    if not run.cpu_fallback:
        return _fail(run, key, why)
    part = replace(run.parts[key], state="waiting", fallback=True)
    return _fill(replace(run, parts={**run.parts, key: part}))


def _fail(run: Run, key: WorkKey, why: str) -> tuple[Run, tuple[Effect, ...]]:
    return replace(_with(run, key, state="failed"), phase="failed"), (Fail(key, why),)


def _current(run: Run, key: WorkKey, attempt: int) -> bool:
    part = run.parts.get(key)
    return part is not None and part.state == "running" and part.attempts == attempt


def _with(run: Run, key: WorkKey, *, state: PartPhase | None = None, died: bool | None = None) -> Run:
    part = run.parts[key]
    part = replace(part, state=state or part.state, died=part.died if died is None else died)
    return replace(run, parts={**run.parts, key: part})


def _fill(run: Run) -> tuple[Run, tuple[Effect, ...]]:
    """Give free slots to waiting parts, in order."""
    free = run.slots - run.in_flight()
    effects: list[Effect] = []
    parts = dict(run.parts)
    for key, part in run.parts.items():
        if free <= 0:
            break
        if part.state == "waiting":
            parts[key] = replace(part, state="running", attempts=part.attempts + 1)
            effects.append(Submit(key, part.attempts + 1, part.fallback))
            free -= 1
    return replace(run, parts=parts), tuple(effects)
