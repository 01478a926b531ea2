"""The life of a run, event by event: tries, budgets, restarts and ends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from etl.planning.jobs import RETRIES
from etl.run.state import (
    MAX_HALVINGS,
    Effect,
    Event,
    Fail,
    Finish,
    Halve,
    PartBroke,
    PartHalved,
    PartStaged,
    PiecesKnown,
    Planned,
    Publish,
    Restart,
    Run,
    SnapshotGone,
    Stop,
    StopAsked,
    Submit,
    Wait,
    WaitOver,
    WasPublished,
    WorkKey,
    budget,
    step,
)


def keys(count: int) -> tuple[tuple[int, int], ...]:
    return tuple((0, i) for i in range(count))


def drive(run: Run, *events: Event) -> tuple[Run, list[Effect]]:
    effects: list[Effect] = []
    for event in events:
        run, more = step(run, event)
        effects += more
    return run, effects


def test_no_more_parts_are_in_flight_than_there_are_slots() -> None:
    run, effects = drive(Run("r"), Planned(keys(5), 2))
    assert effects == [Submit((0, 0), 1), Submit((0, 1), 1)]
    run, effects = drive(run, PartStaged((0, 1), 1))
    assert effects == [Submit((0, 2), 1)]
    assert run.in_flight() == 2


def test_the_last_staged_part_publishes_once() -> None:
    run, effects = drive(Run("r"), Planned(keys(2), 4), PartStaged((0, 0), 1), PartStaged((0, 1), 1))
    assert effects[-1] == Publish()
    assert run.phase == "publishing"
    assert drive(run, PartStaged((0, 1), 1))[1] == []
    assert drive(run, WasPublished())[0].phase == "succeeded"


def test_a_transient_failure_waits_longer_each_time_and_then_gives_up() -> None:
    run, _ = drive(Run("r"), Planned(keys(1), 1))
    waits = []
    for attempt in range(1, RETRIES + 1):
        run, effects = drive(run, PartBroke((0, 0), attempt, "transient"))
        (wait,) = effects
        assert isinstance(wait, Wait)
        waits.append(wait.at_most)
        run, effects = drive(run, WaitOver((0, 0)))
        assert effects == [Submit((0, 0), attempt + 1)]
    assert waits == [2.0, 4.0, 8.0]
    run, effects = drive(run, PartBroke((0, 0), RETRIES + 1, "transient"))
    assert effects == [Fail((0, 0), "given up after 4 attempts")]
    assert run.phase == "failed"


def test_a_waiting_part_gives_its_slot_to_another() -> None:
    _, effects = drive(Run("r"), Planned(keys(3), 1), PartBroke((0, 0), 1, "transient"))
    assert effects == [Submit((0, 0), 1), Wait((0, 0), 2.0), Submit((0, 1), 1)]


def test_a_permanent_failure_ends_the_run_at_once() -> None:
    run, effects = drive(Run("r"), Planned(keys(3), 2), PartBroke((0, 1), 1, "permanent"))
    assert effects[-1] == Fail((0, 1), "")
    assert drive(run, PartStaged((0, 0), 1))[1] == []


def test_the_budget_of_a_run_is_shared_by_its_parts() -> None:
    count = 30
    run, _ = drive(Run("r"), Planned(keys(count), count))
    for i in range(budget(count)):
        run, effects = drive(run, PartBroke((0, i), 1, "transient"))
        assert isinstance(effects[0], Wait)
    _, effects = drive(run, PartBroke((0, budget(count)), 1, "transient"))
    assert effects == [Fail((0, budget(count)), f"the run's budget of {budget(count)} retries is used up")]


def test_a_stale_attempt_changes_nothing() -> None:
    run, _ = drive(Run("r"), Planned(keys(1), 1), PartBroke((0, 0), 1, "transient"), WaitOver((0, 0)))
    assert drive(run, PartStaged((0, 0), 1)) == (run, [])
    assert drive(run, PartBroke((0, 0), 1, "permanent")) == (run, [])


def test_a_lost_snapshot_restarts_at_most_twice() -> None:
    run = Run("r")
    for _ in range(2):
        run, effects = drive(run, Planned(keys(2), 2), PartBroke((0, 0), 1, "permanent", snapshot_lost=True))
        assert effects[-1] == Restart()
    run, effects = drive(run, Planned(keys(2), 2), PartBroke((0, 0), 1, "permanent", snapshot_lost=True))
    assert effects[-1] == Fail((0, 0), "the snapshot was lost 3 times")
    assert run.phase == "failed"


def test_a_snapshot_lost_outside_of_parts_counts_as_one_lost_by_a_part() -> None:
    run, _ = drive(Run("r"), Planned(keys(1), 1), PartStaged((0, 0), 1))
    assert run.phase == "publishing"
    run, effects = drive(run, SnapshotGone())
    assert (run.phase, effects) == ("running", [Restart()])
    run, effects = drive(run, Planned(keys(1), 1), PartBroke((0, 0), 1, "permanent", snapshot_lost=True))
    assert effects[-1] == Restart()
    run, effects = drive(run, SnapshotGone())
    assert (run.phase, effects) == ("failed", [])


def test_a_stop_ends_the_run_whatever_comes_after() -> None:
    run, effects = drive(Run("r"), Planned(keys(2), 2), StopAsked(), PartStaged((0, 0), 1), PartStaged((0, 1), 1))
    assert effects[-1] == Stop()
    assert run.phase == "cancelled"


@given(count=st.integers(1, 12), slots=st.integers(1, 5), data=st.data())
def test_any_order_of_ends_stages_every_part_or_ends_the_run(count: int, slots: int, data: st.DataObject) -> None:
    run, effects = drive(Run("r"), Planned(keys(count), slots))
    open_: list[tuple[WorkKey, int]] = []
    waiting: list[WorkKey] = []
    for _ in range(500):
        open_ += [(e.key, e.attempt) for e in effects if isinstance(e, Submit)]
        waiting += [e.key for e in effects if isinstance(e, Wait)]
        if run.phase != "running":
            break
        assert len(open_) <= slots
        assert open_ or waiting, "the run has come to a standstill"
        if waiting and (not open_ or data.draw(st.booleans())):
            run, more = step(run, WaitOver(waiting.pop(0)))
        else:
            key, attempt = open_.pop(data.draw(st.integers(0, len(open_) - 1)))
            good = data.draw(st.integers(0, 3)) > 0
            run, more = step(run, PartStaged(key, attempt) if good else PartBroke(key, attempt, "transient"))
        effects = list(more)
    assert run.phase in ("publishing", "failed")
    if run.phase == "publishing":
        assert all(p.state == "staged" for p in run.parts.values())


PIECES = ((0, 0, 0), (0, 0, 1), (0, 0, 2))


def finishing() -> tuple[Run, list[Effect]]:
    return drive(Run("r"), Planned(keys(2), 2, finishes=True), PartStaged((0, 0), 1), PartStaged((0, 1), 1))


def test_what_is_left_after_the_parts_is_done_within_the_slots_and_published_last() -> None:
    run, effects = finishing()
    assert (run.phase, effects[-1]) == ("finishing", Finish())
    run, effects = drive(run, PiecesKnown(PIECES))
    assert effects == [Submit(PIECES[0], 1), Submit(PIECES[1], 1)]
    run, effects = drive(run, PartStaged(PIECES[1], 1), PartStaged(PIECES[0], 1))
    assert effects == [Submit(PIECES[2], 1)]
    run, effects = drive(run, PartStaged(PIECES[2], 1))
    assert (run.phase, effects) == ("publishing", [Publish()])
    assert all(run.parts[key].state == "staged" for key in keys(2)), "parts are remembered"


def test_nothing_left_after_the_parts_is_published_at_once() -> None:
    run, _ = finishing()
    run, effects = drive(run, PiecesKnown(()))
    assert (run.phase, effects) == ("publishing", [Publish()])


def test_a_piece_that_breaks_is_tried_again_and_a_stop_ends_them_all() -> None:
    run, _ = finishing()
    run, effects = drive(run, PiecesKnown(PIECES), PartBroke(PIECES[0], 1, "transient"))
    assert any(isinstance(e, Wait) and e.key == PIECES[0] for e in effects)
    again, effects = drive(run, PartStaged(PIECES[1], 1), WaitOver(PIECES[0]))
    assert Submit(PIECES[0], 2) in effects
    assert drive(again, PartStaged(PIECES[0], 1))[0] == again, "the attempt before is nobody's any more"
    assert drive(run, StopAsked())[1] == [Stop()]
    assert drive(run, PartBroke(PIECES[1], 1, "permanent"))[1] == [Fail(PIECES[1], "")]


def test_a_snapshot_lost_while_pieces_are_done_begins_with_the_parts_again() -> None:
    run, _ = finishing()
    run, effects = drive(run, PiecesKnown(PIECES), SnapshotGone())
    assert (run.phase, effects[-1]) == ("running", Restart())
    run, effects = drive(run, Planned(keys(1), 1, finishes=True), PartStaged((0, 0), 1))
    assert effects[-1] == Finish()


def test_a_part_that_memory_cannot_hold_is_halved_in_its_place_and_never_tried_again() -> None:
    run, effects = drive(Run("r"), Planned(keys(3), 1), PartStaged((0, 0), 1), PartBroke((0, 1), 1, "memory"))
    assert effects[-1] == Halve((0, 1))
    assert run.retries_used == 0
    run, effects = drive(run, PartHalved((0, 1), ((0, 3), (0, 4))))
    assert effects == [Submit((0, 3), 1)]
    assert list(run.parts) == [(0, 0), (0, 3), (0, 4), (0, 2)]
    run, effects = drive(run, PartStaged((0, 3), 1), PartStaged((0, 4), 1), PartStaged((0, 2), 1))
    assert effects == [Submit((0, 4), 1), Submit((0, 2), 1), Publish()]


def test_halving_ends_at_a_sixteenth_or_where_a_part_cannot_be_cut() -> None:
    run, _ = drive(Run("r"), Planned(keys(1), 1))
    key = (0, 0)
    for depth in range(MAX_HALVINGS):
        halves = ((0, 2 * depth + 1), (0, 2 * depth + 2))
        run, effects = drive(run, PartBroke(key, 1, "memory"), PartHalved(key, halves))
        assert Halve(key) in effects
        key = halves[0]
    run, effects = drive(run, PartBroke(key, 1, "memory"))
    assert run.phase == "failed"
    assert effects == [Fail(key, "too large even as 1/16 of the part that was planned")]
    run, effects = drive(Run("r"), Planned(keys(1), 1), PartBroke((0, 0), 1, "memory"), PartHalved((0, 0), ()))
    assert effects[-1] == Fail((0, 0), "and it cannot be halved")


def test_a_part_whose_worker_died_over_its_frame_is_halved_and_in_the_end_tried_as_it_is() -> None:
    run, _ = drive(Run("r"), Planned(keys(1), 1))
    key = (0, 0)
    for depth in range(MAX_HALVINGS):
        halves = ((0, 2 * depth + 1), (0, 2 * depth + 2))
        run, effects = drive(run, PartBroke(key, 1, "transient", died=True), PartHalved(key, halves))
        assert effects == [Halve(key), Submit(halves[0], 1)]
        assert run.retries_used == depth + 1
        key = halves[0]
    run, effects = drive(run, PartBroke(key, 1, "transient", died=True))
    assert effects == [Wait(key, 2.0), Submit((0, 2 * MAX_HALVINGS), 1)], "not every death is for want of memory"

    run, effects = drive(Run("r"), Planned(keys(1), 1), PartBroke((0, 0), 1, "transient", died=True))
    run, effects = drive(run, PartHalved((0, 0), ()))
    assert effects == [Wait((0, 0), 2.0)], "it cannot be cut"
    run, effects = drive(run, WaitOver((0, 0)), PartBroke((0, 0), 2, "transient"))
    assert effects == [Submit((0, 0), 2), Wait((0, 0), 4.0)]
    assert not run.parts[0, 0].died


def test_workers_that_die_of_something_else_use_the_budget_of_the_run_up() -> None:
    run, _ = drive(Run("r", retries=0), Planned(keys(50), 1))
    died = 0
    while run.phase == "running":
        key, part = next((k, p) for k, p in run.parts.items() if p.state == "running")
        run, effects = step(run, PartBroke(key, part.attempts, "transient", died=True))
        died += 1
        if isinstance(effects[0], Halve):
            free = max(key[1] for key in run.parts) + 1
            run, _ = step(run, PartHalved(effects[0].key, ((0, free), (0, free + 1))))
    assert run.phase == "failed"
    assert died == MAX_HALVINGS + 1


def test_a_part_too_large_for_the_device_goes_to_the_cpu_only_where_that_is_allowed_and_once() -> None:
    planned = Planned(keys(1), 1, cpu_fallback=True)
    run, effects = drive(Run("r"), planned, PartBroke((0, 0), 1, "memory"), PartHalved((0, 0), ()))
    assert effects[-1] == Submit((0, 0), 2, fallback=True)
    run, effects = drive(run, PartBroke((0, 0), 2, "memory"))
    assert run.phase == "failed"
    assert effects == [Fail((0, 0), "too large for the CPU, too")]


def test_retries_are_those_of_the_run_and_a_wait_that_was_asked_for_is_kept() -> None:
    run, effects = drive(Run("r", retries=0), Planned(keys(1), 1), PartBroke((0, 0), 1, "transient"))
    assert effects[-1] == Fail((0, 0), "given up after 1 attempt")
    run, effects = drive(Run("r", retries=1), Planned(keys(1), 1), PartBroke((0, 0), 1, "transient", after=30))
    assert effects[-1] == Wait((0, 0), 30, 30)
    assert run.phase == "running"


def test_parts_that_were_done_before_are_not_started_again() -> None:
    _, effects = drive(Run("r"), Planned(keys(3), 5, done=frozenset({(0, 1)})))
    assert effects == [Submit((0, 0), 1), Submit((0, 2), 1)]
    _, effects = drive(Run("r"), Planned(keys(2), 5, done=frozenset(keys(2))))
    assert effects == [Publish()]
    _, effects = drive(Run("r"), Planned(keys(2), 5, finishes=True, done=frozenset(keys(2))))
    assert effects == [Finish()]
