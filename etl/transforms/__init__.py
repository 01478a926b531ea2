"""Steps as data: what happens to a frame between a pipeline's function and its sink, fitted once and saved."""

from __future__ import annotations

from etl.transforms.columns import FillNull
from etl.transforms.scale import Standardize

__all__ = ["FillNull", "Standardize"]
