"""Modules that are imported when something of them is first used: what a service that loads a fit can do without."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Late:
    """A module by name; its attributes import it.

    Attributes:
        module: Its full name.
    """

    module: str

    def __getattr__(self, name: str) -> Any:
        """Something of the module.

        Raises:
            ImportError: There is no such module.
        """
        return getattr(importlib.import_module(self.module), name)
