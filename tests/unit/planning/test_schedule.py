"""Schedules as data: what is wrong with one is said when it is written down."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING

import pytest

from etl.core.errors import ConfigError
from etl.planning.schedule import Policy, after, cron, every

if TYPE_CHECKING:
    from collections.abc import Callable


def test_words_become_fields() -> None:
    assert cron("@daily").expression == "0 0 * * *"
    assert cron(" 0  2 * * MON-FRI ", tz="Asia/Shanghai").expression == "0 2 * * MON-FRI"
    assert cron("0 0 29 2 *").tz == "UTC"


def test_a_schedule_keeps_its_policies() -> None:
    assert every(weeks=1, at="02:00", tz="Europe/Zurich", missed="all", missed_max=3, overlap="queue_one").policy == (
        Policy(missed="all", missed_max=3, overlap="queue_one")
    )
    assert every(weeks=1, at="02:00").at == time(2)
    assert every(hours=6, anchor=datetime(2026, 1, 1, tzinfo=UTC)).step == {"hours": 6}
    assert after("lake/orders", "lake/clicks", exclude=[date(2026, 1, 1)]).policy.exclude == (date(2026, 1, 1),)


@pytest.mark.parametrize(
    "expression",
    ["0 0 31 2 *", "*/0 * * * *", "60 0 * * *", "0 0 * * 8", "0 22-2 * * *", "0 0 ? * *", "* * * *", "* * * * * *",
     "", "@reboot", "soon"],
)  # fmt: skip
def test_an_expression_that_is_never_due_or_none_is_refused(expression: str) -> None:
    with pytest.raises(ConfigError, match=r"cron\("):
        cron(expression)


BAD: list[tuple[Callable[[], object], str]] = [
    (lambda: cron("0 2 * * *", tz="Europe/Zuerich"), "tz 'Europe/Zuerich' is no time zone"),
    (lambda: cron("0 2 * * *", tz="../etc/passwd"), "is no time zone"),
    (lambda: cron("0 2 * * *", missed="never"), "missed is 'never'"),  # type: ignore[arg-type]
    (lambda: cron("0 2 * * *", overlap="queue"), "Did you mean queue_"),  # type: ignore[arg-type]
    (lambda: cron("0 2 * * *", missed="all", overlap="skip"), "were given together"),
    (lambda: cron("0 2 * * *", missed_max=3), 'missed_max was given without missed="all"'),
    (lambda: cron("0 2 * * *", missed="all", missed_max=0), "missed_max is 0"),
    (lambda: cron("0 2 * * *", max_active=2), 'without overlap="allow"'),
    (lambda: cron("0 2 * * *", jitter=timedelta(0)), "jitter is"),
    (lambda: cron("0 2 * * *", exclude=[datetime(2026, 1, 1, tzinfo=UTC)]), "exclude is"),
    (lambda: cron("0 2 * * *", exclude="2026-01-01"), "exclude is"),  # type: ignore[arg-type]
    (lambda: cron("0 2 * * *", start="2026-01-01"), "start is"),  # type: ignore[arg-type]
    (every, "every() has no step"),
    (lambda: every(hours=-1), "every(hours=-1)"),
    (lambda: every(hours=1.5), "every(hours=1.5)"),  # type: ignore[arg-type]
    (lambda: every(days=1, hours=1), "mixes hours and days"),
    (lambda: every(days=1, weeks=1), "mixes days and weeks"),
    (lambda: every(hours=1, at="02:00"), "at= with elapsed time"),
    (lambda: every(days=1, at="2 o'clock"), "at is"),
    (lambda: every(days=1, at="02:00Z"), "at is"),
    (lambda: every(days=1, anchor=datetime(2026, 1, 1, tzinfo=UTC)), "anchor= with steps of the calendar"),
    (lambda: every(hours=1, anchor=datetime(2026, 1, 1)), "It is a datetime with a zone"),  # noqa: DTZ001 - refused
    (after, "names no dataset"),
    (lambda: after("lake/a", "lake/a"), "names lake/a twice"),
    (lambda: after(""), "is no dataset's folder"),
]


@pytest.mark.parametrize(("make", "said"), BAD, ids=range(len(BAD)))
def test_a_bad_schedule_is_refused(make: Callable[[], object], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert said in str(caught.value)
