"""When a pipeline is due, as data: checked here, carried out by a service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import date, datetime, time, timedelta
from typing import Any, Literal, TypeAlias, get_args
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from etl.core.errors import ConfigError
from etl.core.schema import nearest

Missed: TypeAlias = Literal["last", "skip", "all"]
Overlap: TypeAlias = Literal["skip", "queue_one", "queue_all", "cancel_running", "allow"]

NICKNAMES: Mapping[str, str] = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_EPOCH = datetime(2001, 1, 1)  # noqa: DTZ001 - only a place for cronsim to start reading the fields at
_CLOCK = ("hours", "minutes")
_CALENDAR = ("days", "weeks", "months")


@dataclass(frozen=True, slots=True)
class Policy:
    """What holds for every kind of schedule.

    Attributes:
        missed: Which occurrences run that were due while nothing could run; None: the service's default.
        missed_max: With "all": at most so many, the newest.
        missed_within: Older ones never run.
        overlap: What happens when a run is due while another goes on; None: the service's default.
        max_active: With "allow": at most so many at once.
        jitter: Starts are spread over so long.
        exclude: Days on which nothing runs.
        start: Nothing is due before.
    """

    missed: Missed | None = None
    missed_max: int | None = None
    missed_within: timedelta | None = None
    overlap: Overlap | None = None
    max_active: int | None = None
    jitter: timedelta | None = None
    exclude: tuple[date, ...] = ()
    start: datetime | date | None = None

    def __post_init__(self) -> None:
        _choice("missed", self.missed, get_args(Missed))
        _choice("overlap", self.overlap, get_args(Overlap))
        for what, value, needs in (
            ("missed_max", self.missed_max, self.missed == "all"),
            ("max_active", self.max_active, self.overlap == "allow"),
        ):
            if value is not None and not _whole(value, least=1):
                raise ConfigError(f"{what} is {value!r}", hint="It is a whole number from 1 on.")
            if value is not None and not needs:
                other = 'missed="all"' if what == "missed_max" else 'overlap="allow"'
                raise ConfigError(f"{what} was given without {other}")
        for what, span in (("missed_within", self.missed_within), ("jitter", self.jitter)):
            if span is not None and not _positive(span):
                raise ConfigError(f"{what} is {span!r}", hint="It is a timedelta above 0.")
        if self.missed == "all" and self.overlap == "skip":
            raise ConfigError('missed="all" and overlap="skip" were given together: what was missed would be skipped')
        if not all(type(day) is date for day in self.exclude):
            raise ConfigError(f"exclude is {list(self.exclude)!r}", hint="It is a list of dates.")
        if self.start is not None and not isinstance(self.start, date):
            raise ConfigError(f"start is {self.start!r}", hint="It is a date or datetime.")


@dataclass(frozen=True, slots=True)
class Cron:
    """Due by the clock of a zone: five fields, as in Debian's cron."""

    expression: str
    _: KW_ONLY
    tz: str = "UTC"
    policy: Policy = field(default_factory=Policy)


@dataclass(frozen=True, slots=True)
class Every:
    """Due again and again: elapsed time (hours, minutes) from an anchor, or steps of the calendar at a time of day."""

    step: Mapping[str, int]
    _: KW_ONLY
    at: time | None = None
    tz: str = "UTC"
    anchor: datetime | None = None
    policy: Policy = field(default_factory=Policy)


@dataclass(frozen=True, slots=True)
class After:
    """Due when every one of these datasets has a new version."""

    targets: tuple[str, ...]
    _: KW_ONLY
    policy: Policy = field(default_factory=Policy)


Schedule: TypeAlias = Cron | Every | After


def cron(
    expression: str,
    /,
    *,
    tz: str = "UTC",
    missed: Missed | None = None,
    missed_max: int | None = None,
    missed_within: timedelta | None = None,
    overlap: Overlap | None = None,
    max_active: int | None = None,
    jitter: timedelta | None = None,
    exclude: Sequence[date] = (),
    start: datetime | date | None = None,
) -> Cron:
    """Due by a cron expression: minute, hour, day of month, month, weekday, or a word such as "@daily".

    Args:
        expression: As in Debian's cron.
        tz: The zone whose clock counts.
        missed: Which missed occurrences run.
        missed_max: With "all": at most so many.
        missed_within: Older ones never run.
        overlap: What happens when another run goes on.
        max_active: With "allow": at most so many at once.
        jitter: Starts are spread over so long.
        exclude: Days on which nothing runs.
        start: Nothing is due before.

    Raises:
        ConfigError: The expression or zone is none, or policies are at odds.
    """
    policy = Policy(missed, missed_max, missed_within, overlap, max_active, jitter, _days(exclude), start)
    _zone(tz)
    return Cron(_fields(expression), tz=tz, policy=policy)


def every(
    *,
    minutes: int = 0,
    hours: int = 0,
    days: int = 0,
    weeks: int = 0,
    months: int = 0,
    at: str | time | None = None,
    tz: str = "UTC",
    anchor: datetime | None = None,
    missed: Missed | None = None,
    missed_max: int | None = None,
    missed_within: timedelta | None = None,
    overlap: Overlap | None = None,
    max_active: int | None = None,
    jitter: timedelta | None = None,
    exclude: Sequence[date] = (),
    start: datetime | date | None = None,
) -> Every:
    """Due every so many hours and minutes, or every so many days, weeks or months at a time of day.

    Args:
        minutes: Elapsed time.
        hours: Elapsed time.
        days: Steps of the calendar, in the zone.
        weeks: As `days`.
        months: As `days`; the 31st falls on the last day of a short month.
        at: The time of day of calendar steps, "02:00"; None: midnight.
        tz: The zone of calendar steps.
        anchor: Where elapsed time counts from; None: the first load.
        missed: Which missed occurrences run.
        missed_max: With "all": at most so many.
        missed_within: Older ones never run.
        overlap: What happens when another run goes on.
        max_active: With "allow": at most so many at once.
        jitter: Starts are spread over so long.
        exclude: Days on which nothing runs.
        start: Nothing is due before.

    Raises:
        ConfigError: No step, steps of both kinds, a time or zone that is none, or policies are at odds.
    """
    policy = Policy(missed, missed_max, missed_within, overlap, max_active, jitter, _days(exclude), start)
    given = {"minutes": minutes, "hours": hours, "days": days, "weeks": weeks, "months": months}
    for what, number in given.items():
        if not _whole(number, least=0):
            raise ConfigError(f"every({what}={number!r})", hint="It is a whole number from 1 on.")
    step = {what: number for what, number in given.items() if number}
    clock, calendar = [w for w in step if w in _CLOCK], [w for w in step if w in _CALENDAR]
    if not step:
        raise ConfigError("every() has no step", hint="Give minutes=, hours=, days=, weeks= or months=.")
    if clock and calendar:
        raise ConfigError(
            f"every() mixes {' and '.join(step)}",
            hint="Hours and minutes are elapsed time; days, weeks and months are steps of the calendar.",
        )
    if len(calendar) > 1:
        raise ConfigError(f"every() mixes {' and '.join(step)}", hint="Give one of them.")
    if clock and at is not None:
        raise ConfigError("every() has at= with elapsed time", hint="Use days=, or anchor= for where to count from.")
    if calendar and anchor is not None:
        raise ConfigError("every() has anchor= with steps of the calendar", hint="Use start= and at=.")
    if anchor is not None and not _aware(anchor):
        raise ConfigError(f"every(anchor={anchor!r})", hint="It is a datetime with a zone.")
    _zone(tz)
    return Every(step, at=_time(at), tz=tz, anchor=anchor, policy=policy)


def after(
    *targets: str,
    missed: Missed | None = None,
    missed_max: int | None = None,
    missed_within: timedelta | None = None,
    overlap: Overlap | None = None,
    max_active: int | None = None,
    jitter: timedelta | None = None,
    exclude: Sequence[date] = (),
    start: datetime | date | None = None,
) -> After:
    """Due when every one of these datasets has a new version since the last run.

    Args:
        *targets: Their folders.
        missed: Which missed occurrences run.
        missed_max: With "all": at most so many.
        missed_within: Older ones never run.
        overlap: What happens when another run goes on.
        max_active: With "allow": at most so many at once.
        jitter: Starts are spread over so long.
        exclude: Days on which nothing runs.
        start: Nothing is due before.

    Raises:
        ConfigError: No target, one that is no text or is given twice, or policies are at odds.
    """
    policy = Policy(missed, missed_max, missed_within, overlap, max_active, jitter, _days(exclude), start)
    if not targets:
        raise ConfigError("after() names no dataset", hint='Write it as after("lake/orders").')
    for target in targets:
        if not _text(target):
            raise ConfigError(f"after({target!r}) is no dataset's folder")
        if targets.count(target) > 1:
            raise ConfigError(f"after() names {target} twice")
    return After(targets, policy=policy)


def _whole(value: object, *, least: int) -> bool:
    return type(value) is int and value >= least


def _positive(span: object) -> bool:
    return isinstance(span, timedelta) and span > timedelta(0)


def _text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _aware(value: object) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None


def _fields(expression: object) -> str:
    if not isinstance(expression, str):
        raise ConfigError(f"cron({expression!r}) is no text", hint='Write it as cron("0 2 * * *").')
    text = " ".join(expression.split())
    if text.startswith("@"):
        if text.lower() not in NICKNAMES:
            raise ConfigError(f"cron({expression!r}) is unknown", hint=nearest(text.lower(), NICKNAMES, what="words"))
        return NICKNAMES[text.lower()]
    count = len(text.split())
    if count != 5:
        raise ConfigError(
            f"cron({expression!r}) has {count} field{'s' * (count != 1)}, not 5",
            hint="They are minute, hour, day of month, month, weekday.",
        )
    try:
        next(CronSim(text, _EPOCH))
    except CronSimError as error:
        raise ConfigError(f"cron({expression!r}) is not an expression: {error}") from error
    except StopIteration:
        raise ConfigError(f"cron({expression!r}) is never due") from None
    return text


def _zone(name: object) -> None:
    try:
        if not isinstance(name, str):
            raise TypeError
        ZoneInfo(name)
    except (TypeError, ValueError, OSError, KeyError):
        raise ConfigError(f"tz {name!r} is no time zone", hint='Write it as "Europe/Zurich" or "UTC".') from None


def _time(at: object) -> time | None:
    if at is None:
        return None
    try:
        found = at if isinstance(at, time) else time.fromisoformat(str(at))
    except ValueError:
        found = None
    if found is None or found.tzinfo is not None:
        raise ConfigError(f"at is {at!r}", hint='Write it as "02:00", and the zone as tz=.')
    return found


def _days(exclude: object) -> tuple[Any, ...]:
    if isinstance(exclude, str) or not isinstance(exclude, Sequence):
        raise ConfigError(f"exclude is {exclude!r}", hint="It is a list of dates.")
    return tuple(exclude)


def _choice(what: str, value: object, known: Sequence[str]) -> None:
    if value is not None and value not in known:
        raise ConfigError(f"{what} is {value!r}", hint=nearest(str(value), known, what="choices"))
