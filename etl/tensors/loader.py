"""Batches of rows for training and evaluation: the same order on every rank, equal counts, any place resumed at once.

Work is done by threads: reading, gathering and copying release the interpreter's lock, and no row is touched in Python.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from etl.core.errors import ConfigError
from etl.tensors import shuffling
from etl.tensors.ahead import Ahead
from etl.tensors.batch import Batch
from etl.tensors.crossing import crossing
from etl.tensors.frameworks import framework_of, place
from etl.tensors.order import BLOCK_ROWS, Order, Piece, Run, Steps, default_window, rows_of
from etl.tensors.page import small_page
from etl.tensors.shards import Rooms, items_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from numpy.typing import NDArray

    from etl.tensors.crossing import Crossing
    from etl.tensors.shards import Shards

Mode: TypeAlias = Literal["train", "eval"]
As: TypeAlias = Literal["dict", "tuple"]
Arrays: TypeAlias = dict[str, "NDArray[Any]"]

VALID = "valid_rows"
"""The tensor of an evaluation batch that says which rows count."""
STATE_VERSION = 1
_MOST_SPARE = 2
"""Windows whose memory a loader keeps from one epoch to the next: as many as an epoch holds."""


@dataclass(frozen=True, slots=True)
class LoaderOptions:
    """How a split is loaded.

    Attributes:
        batch_size: Rows of this rank's batch; with the ranks it makes the global batch.
        shuffle: Give rows in a permuted order that depends on seed and epoch alone.
        seed: Any integer.
        device: Where batches go, in the framework's words; None: they stay on the host.
        drop_last: Leave out what fills no whole batch on all ranks.
        rank: Of this process; None with `world_size` None: of the launcher.
        world_size: Processes that load together.
        mode: "train", or "eval": every row counts exactly once over all ranks, told by `valid_rows`.
        framework: numpy, torch, jax, tensorflow or cupy; None: NumPy without a device, torch with one.
        as_: "dict": a `Batch`; "tuple": its tensors in order.
        columns: The tensors wanted, in this order; None: all, with their masks.
        host_prefetch: Batches made ahead on the host; 0: made when asked for, by the caller's thread.
        device_prefetch: Batches copied to the device ahead.
        threads: Threads that read a window; no more are started than there are cores, which would only take turns.
        io: How files are read: "pread", "mmap", or "auto", which is pread.
        window_rows: Rows among which single rows are shuffled, in whole blocks of 4096 and at least two; None: 2^18,
            or as many as 256 MiB hold.
    """

    batch_size: int
    shuffle: bool = False
    seed: int = 0
    device: str | None = None
    drop_last: bool = False
    rank: int | None = None
    world_size: int | None = None
    mode: Mode = "train"
    framework: str | None = None
    as_: As = "dict"
    columns: Sequence[str] | None = None
    host_prefetch: int = 4
    device_prefetch: int = 2
    threads: int = 4
    io: Literal["auto", "mmap", "pread"] = "auto"
    window_rows: int | None = None

    def __post_init__(self) -> None:
        least = {"batch_size": 1, "host_prefetch": 0, "device_prefetch": 1, "threads": 1}
        for name, low in least.items():
            object.__setattr__(self, name, _whole(name, getattr(self, name), low))
        object.__setattr__(self, "seed", _whole("seed", self.seed, None))
        choices = {"mode": ("train", "eval"), "as_": ("dict", "tuple"), "io": ("auto", "mmap", "pread")}
        for name, words in choices.items():
            if getattr(self, name) not in words:
                raise ConfigError(f"unknown {name} {getattr(self, name)!r}", hint=f"Use {' or '.join(words)}.")
        if self.mode == "eval" and self.drop_last:
            raise ConfigError(
                "drop_last leaves out rows, and mode='eval' gives every row exactly once",
                hint="Leave drop_last out: the padding of the last batch is told by valid_rows.",
            )
        if (self.rank is None) != (self.world_size is None):
            raise ConfigError("rank and world_size belong together", hint="Give both, or neither.")
        if self.window_rows is not None:
            object.__setattr__(self, "window_rows", _whole("window_rows", self.window_rows, 1))
            if self.window_rows % BLOCK_ROWS or self.window_rows < 2 * BLOCK_ROWS:
                raise ConfigError(
                    f"window_rows is {self.window_rows}",
                    hint=f"A window is whole blocks of {BLOCK_ROWS} rows, and at least two.",
                )
        if isinstance(self.columns, str):
            raise ConfigError(f"columns is the text {self.columns!r}", hint=f"Give a list: [{self.columns!r}].")
        if self.columns is not None and not (len(self.columns) and all(isinstance(n, str) for n in self.columns)):
            raise ConfigError(f"columns is {self.columns!r}", hint="Name tensors, or leave it out for all of them.")


def _whole(name: str, value: object, low: int | None) -> int:
    """The number as Python's own: NumPy's has no room for a seed, and is no JSON value."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or (low is not None and value < low):
        raise ConfigError(f"{name} is {value!r}", hint=f"Give a whole number{'' if low is None else f' from {low}'}.")
    return int(value)


class Loader:
    """Batches of one split for one rank; `iter(loader)` is one epoch, the next `iter` the next epoch.

    Every rank gets the same number of batches, known before the first (`len`). The order of an epoch is a function of
    rows, seed, epoch and the ranks at its start; `state_dict` names a place in it, and to load it costs the same at any
    place. A batch owns its memory.

    Raises:
        ConfigError: An option is wrong, or the dataset holds no tensors.
        Damaged: The first file is missing or not what the manifest says.
    """

    def __init__(self, shards: Shards, options: LoaderOptions, /) -> None:
        if options.rank is None or options.world_size is None:
            rank, world = place()
        else:
            rank, world = options.rank, options.world_size
        self.rank, self.world_size = _whole("rank", rank, 0), _whole("world_size", world, 1)
        if self.rank >= self.world_size:
            raise ConfigError(f"rank is {rank} in a world of {world}", hint="Ranks are counted from 0.")
        self._options = options
        self._shards = shards
        self._framework = framework_of(options.framework, options.device)
        self._names = _selected(shards, options)
        if options.mode == "eval" and VALID in self._names:
            raise ConfigError(
                f"the dataset has a tensor {VALID}, and so has every batch of mode='eval'",
                hint="Leave it out with columns=, or give the column an alias in the query.",
                column=VALID,
            )
        self.window_rows = options.window_rows or default_window(shards.row_bytes)
        self._shuffle, self._drop_last, self._seed = options.shuffle, options.drop_last, options.seed
        self._epoch = self._step = 0
        self._lanes = self.world_size
        self._begun = False
        self._newest: object = None
        self._spare: list[_Memory] = []

    def __repr__(self) -> str:
        order = f"shuffled, seed {self._seed}" if self._shuffle else "in order"
        world = f", rank {self.rank} of {self.world_size}" if self.world_size > 1 else ""
        place = f"epoch {self._epoch}, step {self._step}"
        return f"<Loader of {self._options.batch_size} rows a batch, {order}{world}: {len(self)} batches; at {place}>"

    def _repr_html_(self) -> str:
        """What notebooks show: the tensors of a batch, and where the epoch is."""
        options = self._options
        facts = [
            ("batches", f"{len(self)} of {options.batch_size} rows"),
            ("order", f"shuffled, seed {self._seed}" if self._shuffle else "as written"),
            ("mode", options.mode),
            ("rank", f"{self.rank} of {self.world_size}"),
            ("padding", f"{self.padding} rows"),
            ("next", f"epoch {self._epoch}, step {self._step}"),
        ]
        return small_page("Loader", ", ".join(self._names), ("", ""), facts)

    def __len__(self) -> int:
        """Batches of a whole epoch, the same on every rank; an epoch that was resumed gives those that are left."""
        return len(self._steps())

    @property
    def epoch(self) -> int:
        """The epoch that the next batch is of, counted from 0."""
        return self._epoch

    @property
    def global_batch(self) -> int:
        """Rows of a whole step over all ranks."""
        return self._options.batch_size * self.world_size

    @property
    def padding(self) -> int:
        """Rows that an epoch gives twice so that all ranks get equally many, over all ranks: at most `world_size` - 1.

        Negative: the rows that `drop_last` leaves out. In mode "eval" the rows given twice are those where `valid_rows`
        is False.
        """
        return self._steps().padding(self.world_size)

    def __iter__(self) -> LoaderIterator:
        if self._begun:
            self._start(self._epoch + 1)
        steps = self._steps()
        token: object = object()
        self._newest = token
        stages = self._stages(steps, self._step, 1)
        return LoaderIterator(stages, partial(self._handed, token, self._epoch))

    def every(self, first: int, stride: int, /) -> Generator[Any, None, None] | Ahead[Any]:
        """The batches first, first + stride, … of a whole epoch: what one of `stride` workers makes; no state moves."""
        return self._stages(self._steps(), first, stride).batches()

    def set_epoch(self, epoch: int, /) -> None:
        """Let the next `iter` be this epoch, from its start; of the epoch that a state was loaded for: its rest."""
        wanted = _whole("epoch", epoch, 0)
        if self._begun or wanted != self._epoch:
            self._start(wanted)

    def state_dict(self) -> dict[str, object]:
        """The place after the batches that were handed out, as JSON values; batches made ahead do not count."""
        found: dict[str, object] = {
            "v": STATE_VERSION,
            "content_sha256": self._content,
            "split": self._shards.split,
            "mode": self._options.mode,
            "shuffle": self._shuffle,
            "seed": self._seed,
            "epoch": self._epoch,
            "step": self._step,
            "global_batch": self.global_batch,
            "lanes": self._lanes,
            "drop_last": self._drop_last,
        }
        if self._options.window_rows is not None:
            found["window_rows"] = self.window_rows
        return found

    def load_state_dict(self, state: Mapping[str, object], /) -> None:
        """Go on where a state was taken; shuffle, seed, drop_last and window of the state take the place of ours.

        The next `iter` gives the rest of the state's epoch, and those after it whole epochs. The ranks may be others,
        as long as the global batch is the same.

        Raises:
            ConfigError: It is no state, or one of other content, another split, mode or global batch.
        """
        read = _State(state)
        own = {
            "content_sha256": self._content,
            "split": self._shards.split,
            "mode": self._options.mode,
            "global_batch": self.global_batch,
        }
        for name, ours in own.items():
            if state.get(name) != ours:
                raise ConfigError(
                    f"the loader's state is of {name} {state.get(name)!r}, this loader of {ours!r}",
                    hint=_STATE_HINTS[name],
                )
        lanes, step = read.whole("lanes", 1), read.whole("step", 0)
        if self.global_batch % lanes:
            raise ConfigError(
                f"the loader's state has {lanes} lanes in a global batch of {self.global_batch}", hint=_NO_STATE
            )
        window = read.whole("window_rows", 2 * BLOCK_ROWS) if "window_rows" in state else None
        chosen = window or default_window(self._shards.row_bytes)
        seed, shuffle, drop = read.whole("seed", None), read.flag("shuffle"), read.flag("drop_last")
        order = Order(self._shards.rows, seed, read.whole("epoch", 0), lanes, shuffle, chosen)
        have = len(Steps(order, self.global_batch, drop))
        if step and step >= have:
            raise ConfigError(f"the loader's state is at step {step} of {have}", hint=_NO_STATE)
        self._seed, self._shuffle, self._drop_last = seed, shuffle, drop
        self.window_rows = chosen
        self._options = replace(self._options, window_rows=window)
        self._epoch, self._step, self._lanes = order.epoch, step, lanes
        self._begun = False
        self._newest = None

    def _handed(self, token: object, epoch: int, step: int, steps: int) -> None:
        """A batch of an iterator was handed out: only the newest iterator moves the state."""
        if token is not self._newest:
            return
        if step >= steps:
            self._start(epoch + 1)
        else:
            self._epoch, self._step, self._begun = epoch, step, True

    def _start(self, epoch: int) -> None:
        self._epoch, self._step, self._begun = epoch, 0, False
        self._lanes = self.world_size

    def _stages(self, steps: Steps, first: int, stride: int) -> _Stages:
        return _Stages(
            # Opened anew each epoch, so that a file that went away is missed on every rank alike.
            shards=replace(self._shards, io=self._options.io),
            steps=steps,
            first=first,
            stride=stride,
            rank=self.rank,
            world=self.world_size,
            names=self._names,
            options=self._options,
            framework=self._framework,
            crossing=crossing(self._framework, self._options.device),
            spare=self._spare,
        )

    def _steps(self) -> Steps:
        order = Order(self._shards.rows, self._seed, self._epoch, self._lanes, self._shuffle, self.window_rows)
        return Steps(order, self.global_batch, self._drop_last)

    @property
    def _content(self) -> str:
        return str(self._shards.manifest.document.get("content_sha256"))


_NO_STATE = "Give what state_dict() of a loader returned."
_STATE_HINTS = {
    "content_sha256": "Open the version of the dataset that the state was taken with.",
    "split": "Load the split that the state was taken with.",
    "mode": "Give the same mode.",
    "global_batch": "Choose batch_size so that batch_size * world_size is the same.",
}


@dataclass(frozen=True, slots=True)
class _State:
    """A state that was given, read with care.

    Raises:
        ConfigError: It is none.
    """

    given: Any

    def __post_init__(self) -> None:
        if not isinstance(self.given, Mapping) or "v" not in self.given:
            raise ConfigError("that is not the state of a loader", hint=_NO_STATE)
        if self.given["v"] != STATE_VERSION:
            raise ConfigError(
                f"the loader's state has version {self.given['v']!r}; this cuETL reads {STATE_VERSION}",
                hint="Load it with the cuETL that wrote it.",
            )

    def whole(self, name: str, low: int | None) -> int:
        value = self.given.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or (low is not None and value < low):
            raise ConfigError(f"the loader's state has {name} {value!r}", hint=_NO_STATE)
        return value

    def flag(self, name: str) -> bool:
        value = self.given.get(name)
        if not isinstance(value, bool):
            raise ConfigError(f"the loader's state has {name} {value!r}", hint=_NO_STATE)
        return value


class LoaderIterator:
    """One epoch of a loader, or the rest of one. Letting go of it, or `close`, ends its threads.

    Raises:
        Damaged: A file went missing or was changed; the batch that needed it is not given.
    """

    def __init__(self, stages: _Stages, handed: Callable[[int, int], None], /) -> None:
        self._handed = handed
        self._step = stages.first
        self._steps = len(stages.steps)
        self._done = False
        self._crossing = stages.crossing
        self._batches = stages.batches()

    def __iter__(self) -> LoaderIterator:
        return self

    def __next__(self) -> Any:
        if self._done:
            raise StopIteration
        try:
            batch = next(self._batches)
        except BaseException:
            self.close()
            if not self._steps:
                self._handed(0, 0)  # an epoch without batches is over too
            raise
        self._crossing.received(_parts(batch))
        self._step += 1
        self._handed(self._step, self._steps)
        return batch

    def close(self) -> None:
        """End the epoch here; may be called twice."""
        self._done = True
        self._batches.close()


@dataclass(frozen=True, slots=True)
class _Stages:
    """What an epoch is made by, from files to the caller; knows nothing of the loader, so that threads end with it."""

    shards: Shards
    steps: Steps
    first: int
    stride: int
    rank: int
    world: int
    names: tuple[str, ...]
    options: LoaderOptions
    framework: str
    crossing: Crossing
    spare: list[_Memory]

    def batches(self) -> Generator[Any, None, None] | Ahead[Any]:
        """Batches as the caller gets them."""
        ahead, device = self.options.host_prefetch, self.options.device
        if device is None:
            made = self.handed(self.arrays())
            return Ahead(made, depth=ahead, name="cuetl-loader") if ahead else made
        source = self.arrays()
        host = Ahead(source, depth=ahead, name="cuetl-loader") if ahead else source
        depth = self.options.device_prefetch
        return Ahead(self.handed(host), depth=depth, most=depth + 1, parts=_parts, name="cuetl-device")

    def handed(self, host: Generator[Arrays, None, None] | Ahead[Arrays]) -> Generator[Any, None, None]:
        """Arrays as batches of the framework, on the device."""
        words = dict(self.shards.words)
        words[VALID] = "bool"
        try:
            for arrays in host:
                batch = self.crossing.made(partial(self.batch, arrays, words))
                del arrays
                found = tuple(batch.values()) if self.options.as_ == "tuple" else batch
                del batch
                yield found
                del found
        finally:
            host.close()

    def batch(self, arrays: Arrays, words: Mapping[str, str]) -> Batch:
        """Arrays handed over."""
        return Batch.of(arrays, framework=self.framework, device=self.crossing.device, dtypes=words)

    @property
    def threads(self) -> int:
        """Of this process: as many as were asked for and have a core."""
        return min(self.options.threads, len(os.sched_getaffinity(0)))

    def arrays(self) -> Generator[Arrays, None, None]:
        """The batches of this rank as arrays that nobody else has."""
        count = len(self.steps)
        if self.first >= count:
            return
        with ThreadPoolExecutor(self.threads, thread_name_prefix="cuetl-window") as pool:
            gather = self._gather(pool)
            try:
                for step in range(self.first, count, self.stride):
                    pieces = self.steps.pieces(step, self.rank, self.world)
                    share = self.steps.share(step, self.world)
                    found = gather(pieces, share)
                    if self.options.mode == "eval":
                        found[VALID] = self._valid(pieces, share)
                    yield found
                    del found
            finally:
                pool.shutdown(cancel_futures=True)
                if isinstance(gather, _Windowed):
                    gather.let_go()

    def _gather(self, pool: ThreadPoolExecutor) -> Callable[[Sequence[Piece], int], Arrays]:
        # As many as wait, lie with the consumer or are being made: more would never be idle.
        rooms = Rooms(self.options.host_prefetch + self.options.device_prefetch + 4)
        if not self.steps.order.shuffle:
            return _Written(self.shards, self.steps.order, self.names, rooms)
        each, share = self.steps.lane_batch, self.steps.global_batch // self.world
        lanes = {self.rank * share // each, ((self.rank + 1) * share - 1) // each}
        if len(lanes) == 1:
            return _Windowed(self.shards, self.steps.order, self.names, rooms, pool, self.threads, self.spare)
        return _Scattered(self.shards, self.steps.order, self.names)

    def _valid(self, pieces: Sequence[Piece], share: int) -> NDArray[np.bool_]:
        found = np.zeros(share, np.bool_)
        at = 0
        for piece in pieces:
            inside = min(piece.stop, self.steps.order.lane_rows(piece.lane)) - piece.start
            found[at : at + max(0, inside)] = True
            at += piece.stop - piece.start
        return found


def _parts(batch: Any) -> Sequence[object]:
    return list(batch.values()) if isinstance(batch, Batch) else list(batch)


def _selected(shards: Shards, options: LoaderOptions) -> tuple[str, ...]:
    """The tensors asked for. In a mapping a tensor brings its mask along, so that no NULL passes for a 0."""
    wanted = options.columns
    if wanted is not None and options.as_ == "dict":
        wanted = [m for n in wanted for m in (n, f"{n}.valid") if m == n or m in shards.kinds]
    return shards.select(wanted)


class _Written:
    """Batches in the written order: runs, read straight into the batch."""

    def __init__(self, shards: Shards, order: Order, names: tuple[str, ...], rooms: Rooms) -> None:
        self._shards, self._order, self._names, self._rooms = shards, order, names, rooms

    def __call__(self, pieces: Sequence[Piece], rows: int) -> Arrays:
        runs: list[Run] = []
        have = 0
        for piece in pieces:
            first, end = self._order.bounds(piece.lane)
            inside = min(first + piece.stop, end)
            if first + piece.start < inside:
                runs.append((first + piece.start, inside))
            pad = first + piece.stop - max(inside, first + piece.start)
            row = first if end > first else 0
            runs += [(row, row + 1)] * max(0, pad)
            have += piece.stop - piece.start
        runs += [(0, 1)] * (rows - have)
        return self._shards.gather(self._names, runs, self._rooms)


class _Scattered:
    """Batches of several lanes at once, after a change of ranks: single rows out of the files, and no window held."""

    def __init__(self, shards: Shards, order: Order, names: tuple[str, ...]) -> None:
        self._shards, self._order, self._names = shards, order, names
        self._kept: dict[int, tuple[int, NDArray[np.int64]]] = {}

    def __call__(self, pieces: Sequence[Piece], rows: int) -> Arrays:
        found: list[NDArray[np.int64]] = []
        have = 0
        for piece in pieces:
            have += piece.stop - piece.start
            inside = min(piece.stop, self._order.lane_rows(piece.lane))
            found += [self._window(piece.lane, w)[a:b] for w, a, b in self._order.windows(piece.start, inside)]
            pad = piece.stop - max(piece.start, inside)
            if pad > 0:
                found.append(np.full(pad, _first_row(self._order, piece.lane)))
        found.append(np.zeros(rows - have, np.int64))
        return self._shards.take(self._names, np.concatenate(found))

    def _window(self, lane: int, window: int) -> NDArray[np.int64]:
        kept = self._kept.get(lane)
        if kept is None or kept[0] != window:
            count, key = self._order.window_rows(lane, window), self._order.window_key(lane, window)
            chosen = shuffling.permuted(count, key, shuffling.room_for(count))
            rows = rows_of(self._order.window_runs(lane, window))[chosen]
            kept = self._kept[lane] = (window, rows)
        return kept[1]


def _first_row(order: Order, lane: int) -> int:
    """The row that a lane is padded with: its first, of an empty lane row 0."""
    if not order.lane_rows(lane):
        return 0
    return int(rows_of(order.window_runs(lane, 0))[order.window_order(lane, 0)[0]])


@dataclass(frozen=True, slots=True)
class _Memory:
    """What a window is kept in: used again for another, since fresh pages cost more than filling them.

    Attributes:
        room: Tensor → rows, at most those of a window.
        permuting: For the order in which they come.
    """

    room: Mapping[str, NDArray[Any]]
    permuting: NDArray[np.int64]

    def holds(self, names: Sequence[str], rows: int) -> bool:
        """Whether so many rows of exactly these tensors have room."""
        enough = len(self.permuting) >= 2 * rows and all(len(one) >= rows for one in self.room.values())
        return enough and tuple(self.room) == tuple(names)


@dataclass(frozen=True, slots=True)
class _Window:
    """The rows of a window in memory, in the order of the sequence, and the order in which they come.

    Attributes:
        at: Lane and number.
        memory: Its room begins with the window's rows.
        order: Positions among them.
        lists: Tag → items and offsets.
        reads: What fills the room.
    """

    at: tuple[int, int]
    memory: _Memory
    order: Future[NDArray[np.int64]]
    lists: Mapping[str, Future[tuple[NDArray[Any], NDArray[np.int64]]]]
    reads: Sequence[Future[None]]

    def ready(self) -> None:
        """Wait until all is there.

        Raises:
            Damaged: A file is missing or not what the manifest says.
        """
        self.order.result()
        for lists in self.lists.values():
            lists.result()
        for read in self.reads:
            read.result()


class _Windowed:
    """Batches of one lane, out of the window that they lie in; the next window is read meanwhile, and no third."""

    def __init__(
        self,
        shards: Shards,
        order: Order,
        names: tuple[str, ...],
        rooms: Rooms,
        pool: ThreadPoolExecutor,
        threads: int,
        spare: list[_Memory],
    ) -> None:
        self._shards, self._order, self._names = shards, order, names
        self._rooms, self._pool, self._threads, self._spare = rooms, pool, threads, spare
        self._fixed, self._lists = shards.fixed(names), shards.listed(names)
        self._now: _Window | None = None
        self._next: _Window | None = None

    def __call__(self, pieces: Sequence[Piece], rows: int) -> Arrays:
        out = {n: self._rooms.fresh(self._shards.kinds[n], rows) for n in self._fixed}
        lists: dict[str, list[tuple[NDArray[Any], NDArray[np.int64]]]] = {tag: [] for tag in self._lists}
        at = 0
        for piece in pieces:
            inside = min(piece.stop, self._order.lane_rows(piece.lane))
            for number, low, high in self._order.windows(piece.start, inside):
                window = self._window(piece.lane, number)
                chosen = window.order.result()[low:high]
                for name, source in window.memory.room.items():
                    shuffling.take(source, chosen, out[name][at : at + high - low])
                for tag, future in window.lists.items():
                    lists[tag].append(_chosen(*future.result(), chosen))
                at += high - low
            pad = piece.stop - max(piece.start, inside)
            if pad > 0:
                self._pad(out, lists, at, _first_row(self._order, piece.lane), pad)
                at += pad
        if at < rows:
            self._pad(out, lists, at, 0, rows - at)
        found: Arrays = {}
        joined = {tag: _joined(parts) for tag, parts in lists.items()}
        for name in self._names:
            tag = name.rpartition(".")[0]
            found[name] = out[name] if name in out else joined[tag][not name.endswith(".values")]
        return found

    def _pad(
        self,
        out: Arrays,
        lists: Mapping[str, list[tuple[NDArray[Any], NDArray[np.int64]]]],
        at: int,
        row: int,
        count: int,
    ) -> None:
        for name, one in self._shards.run(self._fixed, row, row + 1).items():
            out[name][at : at + count] = one
        for tag, parts in lists.items():
            parts.append(self._shards.lists(tag, [(row, row + 1)] * count))

    def _window(self, lane: int, number: int) -> _Window:
        if self._now is not None and self._now.at == (lane, number):
            return self._now
        # The one before is let go of first: there are never three.
        for one in (self._now, self._next):
            if one is not None and one.at != (lane, number):
                one.ready()
                self._spare.append(one.memory)
        self._now = self._next if self._next is not None and self._next.at == (lane, number) else None
        self._next = None
        if self._now is None:
            self._now = self._read(lane, number)
        self._now.ready()
        if self._order.window_rows(lane, number + 1):
            self._next = self._read(lane, number + 1)
        return self._now

    def _read(self, lane: int, number: int) -> _Window:
        """Begin to read a window, in memory that no batch refers to."""
        order, shards = self._order, self._shards
        runs = order.window_runs(lane, number)
        rows = order.window_rows(lane, number)
        longest = min(order.window, -(-order.rows // order.lanes))
        memory = self._memory(longest)
        permuted = self._pool.submit(shuffling.permuted, rows, order.window_key(lane, number), memory.permuting)
        lists = {tag: self._pool.submit(shards.lists, tag, runs) for tag in self._lists}
        reads: list[Future[None]] = []
        if memory.room:
            for first, some in _shared(runs, -(-rows // self._threads)):
                count = sum(stop - start for start, stop in some)
                outs = {n: a[first : first + count] for n, a in memory.room.items()}
                reads.append(self._pool.submit(shards.fill, outs, some))
        return _Window((lane, number), memory, permuted, lists, reads)

    def _memory(self, rows: int) -> _Memory:
        while self._spare:
            found = self._spare.pop()
            if found.holds(self._fixed, rows):
                return found
        return _Memory({n: self._shards.kinds[n].fresh(rows) for n in self._fixed}, shuffling.room_for(rows))

    def let_go(self) -> None:
        """Leave the memory to the next epoch: that of two windows, once nothing is read into it any more."""
        for one in (self._now, self._next):
            if one is not None and len(self._spare) < _MOST_SPARE:
                self._spare.append(one.memory)
        self._now = self._next = None


def _shared(runs: Sequence[Run], size: int) -> Iterator[tuple[int, list[Run]]]:
    """Runs in shares of `size` rows: the first row of the share, its runs."""
    some: list[Run] = []
    first = have = 0
    for run_start, stop in runs:
        start = run_start
        while start < stop:
            end = min(stop, start + size - have)
            some.append((start, end))
            have += end - start
            start = end
            if have == size:
                yield first, some
                first, have, some = first + size, 0, []
    if some:
        yield first, some


def _chosen(
    values: NDArray[Any], offsets: NDArray[np.int64], rows: NDArray[np.int64]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The lists of some rows."""
    count = offsets[rows + 1] - offsets[rows]
    ends = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(count, out=ends[1:])
    return values[items_of(offsets[rows], count)], ends


def _joined(parts: Sequence[tuple[NDArray[Any], NDArray[np.int64]]]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Lists laid end to end."""
    if len(parts) == 1:
        return parts[0]
    offsets = [np.zeros(1, np.int64)]
    for _, one in parts:
        offsets.append(one[1:] + offsets[-1][-1])
    return np.concatenate([values for values, _ in parts]), np.concatenate(offsets)
