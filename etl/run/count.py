"""The count of whole sources, which must equal the rows of all their parts."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

from etl.core.errors import EtlError
from etl.core.partition import Partition, Whole
from etl.run.state import waits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connectors.base import Source
    from etl.core.partition import Snapshot
    from etl.planning.compile import JobPlan


class WholeCount(threading.Thread):
    """Counts whole sources in the snapshot while parts are read; after them where the store bears one reader only."""

    def __init__(self, plans: Sequence[JobPlan], at: Snapshot) -> None:
        super().__init__(name="cuetl-count", daemon=True)
        self._at = at
        self._wanted = [i for i, p in enumerate(plans) if p.job.read.count and len(p.parts.parts) > 1]
        self._plans = plans
        self._beside = all(p.facts.readers != 1 for p in plans)
        self.rows: dict[int, int] = {}
        self.error: BaseException | None = None
        self.over = threading.Event()

    def run(self) -> None:
        """Count one source after the other; what goes wrong is kept for `finish`."""
        try:
            for index in self._wanted:
                self.rows[index] = self._count(self._plans[index].source)
        except BaseException as error:  # noqa: BLE001 - raised again in the run's thread
            self.error = error

    def begin(self) -> None:
        """Start counting where the store bears it beside the readers."""
        if self._beside:
            self.start()

    def _count(self, source: Source) -> int:
        """One count, tried as often as a part."""
        for at_most in waits():
            try:
                return source.count(self._at, Partition(0, Whole()))
            except EtlError as error:
                if error.retry != "transient" or self.over.is_set():
                    raise
            self.over.wait(random.uniform(0, at_most))  # noqa: S311 - jitter, not a secret
        return source.count(self._at, Partition(0, Whole()))

    def finish(self) -> Mapping[int, int]:
        """The counts by job.

        Raises:
            EtlError: The count failed.
        """
        if not self._beside:
            self.start()
        self.join()
        if self.error is not None:
            raise self.error
        return self.rows
