"""The saved state of a fit in a dataset: files below `_state/`, and the `fit` field of the manifests that use it.

What is in the files is `etl.transforms.preprocessor`'s; here they are bytes with hashes. They are never retired: equal
fits share a folder, and a version that is old may be read by a service for years.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from etl.core.errors import Damaged

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

STATE = "_state"
"""The folder of a dataset in which fits lie."""
PLAN = "plan.json"
"""The file of a fit that names the others."""


@dataclass(frozen=True, slots=True)
class SavedFit:
    """A fit on its way into a dataset.

    Attributes:
        entry: The manifest's `fit` field.
        files: Path below the dataset's folder → content; none where the dataset has them (append).
        columns: Column → fields of its entry in the manifest: the steps that wrote it, its vocabulary.
        scores: `scores[]` of the manifest: the models that rows went through.
    """

    entry: Mapping[str, object]
    files: Mapping[str, bytes]
    columns: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    scores: Sequence[Mapping[str, object]] = ()

    def write(self, stage: Path, /) -> None:
        """Put the files into a stage.

        Raises:
            OSError: The file system refused.
        """
        for path, content in self.files.items():
            (stage / path).parent.mkdir(parents=True, exist_ok=True)
            (stage / path).write_bytes(content)


def hashes_of(document: Mapping[str, object], /) -> dict[str, str]:
    """Path → SHA-256 of the files of a manifest's fit; empty without one.

    Raises:
        ValueError: A path lies outside `_state`, so the manifest is damaged.
    """
    fit = document.get("fit")
    if fit is None:
        return {}
    files = fit["files"] if isinstance(fit, dict) else None
    if not isinstance(files, dict):
        raise TypeError("fit lists no files")
    for path, digest in files.items():
        inside = str(path).split("/")
        if inside[0] != STATE or ".." in inside or "\0" in str(path) or not isinstance(digest, str):
            raise ValueError(f"the path {path!r} of the fit lies outside {STATE}")
    return {str(path): str(digest) for path, digest in files.items()}


def checked(found: bytes, path: str, digest: str, /) -> bytes:
    """The content of a file of a fit.

    Raises:
        Damaged: It is another than the manifest says.
    """
    have = hashlib.sha256(found).hexdigest()
    if have != digest:
        raise Damaged(f"{path} has the SHA-256 {have}, the manifest says {digest}", path=path)
    return found
