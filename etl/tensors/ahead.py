"""Making things ahead of their consumer on a thread of its own: bounded, in order, ended by whoever lets go of it."""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar

from etl.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

T = TypeVar("T")


class _Channel(Generic[T]):
    """What the thread and the consumer share; neither keeps the other alive.

    Things that the consumer has let go of are told by weak references to their `parts`: a batch dies with its arrays,
    whatever became of the mapping that they came in.
    """

    def __init__(self, depth: int, most: int | None, parts: Callable[[T], Sequence[object]]) -> None:
        self.changed = threading.Condition()  # an RLock below: a weak reference may die while it is held
        self.ready: deque[T] = deque()
        self.depth = depth
        self.most = most
        self.parts = parts
        self.alive = 0
        self.asked = False
        self.ended = False
        self.closed = False
        self.error: BaseException | None = None
        self.watched: dict[int, tuple[int, list[weakref.ref[object]]]] = {}
        self.made = 0

    def wait_for_room(self) -> bool:
        """Until one more may be made; False: nobody wants any.

        With a limit on those alive, one more is made beyond it only for a consumer that waits with nothing ready: then
        it keeps what it was given, and that is its own memory.
        """
        with self.changed:
            self.changed.wait_for(lambda: self.closed or self._room())
            return not self.closed

    def _room(self) -> bool:
        if len(self.ready) >= self.depth:
            return False
        return self.most is None or self.alive < self.most or (self.asked and not self.ready)

    def put(self, item: T) -> None:
        with self.changed:
            if self.most is not None:
                self._watch(item)
            self.ready.append(item)
            self.changed.notify_all()

    def _watch(self, item: T) -> None:
        self.made += 1
        self.alive += 1
        number, channel = self.made, weakref.ref(self)

        def died(_: object) -> None:
            found = channel()
            if found is not None:
                found.died(number)

        references: list[weakref.ref[object]] = []
        for part in self.parts(item):
            with suppress(TypeError):  # a kind of object that tells nobody when it dies is not counted
                references.append(weakref.ref(part, died))
        self.watched[number] = (len(references), references)
        if not references:
            self.alive -= 1

    def died(self, number: int) -> None:
        """A part of a thing is gone."""
        with self.changed:
            left, references = self.watched.get(number, (0, []))
            if left > 1:
                self.watched[number] = (left - 1, references)
            elif self.watched.pop(number, None) is not None:
                self.alive -= 1
                self.changed.notify_all()

    def end(self, error: BaseException | None) -> None:
        with self.changed:
            self.ended, self.error = True, error
            self.changed.notify_all()

    def close(self) -> None:
        with self.changed:
            self.closed = True
            self.ready.clear()
            self.changed.notify_all()

    def get(self) -> T:
        with self.changed:
            self.asked = True
            if not self.ready:
                self.changed.notify_all()
            self.changed.wait_for(lambda: self.ready or self.ended or self.closed)
            self.asked = False
            if self.ready:
                item = self.ready.popleft()
                self.changed.notify_all()
                return item
            error, self.error = self.error, None
            if error is not None:
                raise error
            raise StopIteration


class Ahead(Generic[T]):
    """An iterator over what a generator makes, made ahead on one thread.

    At most `depth` are ready or being made. With `most`, no more than so many are alive at a time, those with the
    consumer included, as long as it lets go of them in turn. An error of the generator is raised where the thing it
    failed to make would have come. `close`, or letting go of the iterator, ends the thread and closes the generator.

    A process that is forked has no such thread: there it gives nothing.

    Args:
        items: What makes the things; it runs on the thread only.
        depth: At least 1.
        most: None: no limit on those that the consumer holds.
        parts: The objects of a thing whose lives tell that it is alive.
        name: Of the thread.
    """

    def __init__(
        self,
        items: Generator[T, None, None],
        /,
        *,
        depth: int,
        name: str,
        most: int | None = None,
        parts: Callable[[T], Sequence[object]] = lambda _: (),
    ) -> None:
        self._channel = _Channel[T](depth, most, parts)
        self._process = os.getpid()
        # A daemon, or an iterator that nobody closed would keep the interpreter from ending.
        self._thread = threading.Thread(target=_make, args=(self._channel, items), name=name, daemon=True)
        self._release = weakref.finalize(self, _let_go, self._channel, self._process)
        self._thread.start()

    def __iter__(self) -> Ahead[T]:
        return self

    def __next__(self) -> T:
        if os.getpid() != self._process:
            raise ConfigError(
                "this iterator was begun in another process, and its threads are there",
                hint="Begin one in each process, after the fork: iter(loader).",
            )
        return self._channel.get()

    def close(self) -> None:
        """End the thread and wait for its end; may be called twice."""
        self._release()
        if self._thread is not threading.current_thread():
            self._thread.join()


def _let_go(channel: _Channel[T], process: int) -> None:
    # In a fork the lock may be one that a thread held which is not there to give it back.
    if os.getpid() == process:
        channel.close()


def _make(channel: _Channel[T], items: Generator[T, None, None]) -> None:
    error: BaseException | None = None
    try:
        while channel.wait_for_room():
            try:
                item = next(items)
            except StopIteration:
                break
            channel.put(item)
            del item  # or the thread would keep it alive while it waits for room
    except BaseException as caught:  # noqa: BLE001 - it is raised where the consumer asks
        error = caught
    try:
        items.close()
    finally:
        channel.end(error)
