"""`cuetl init`: a folder to start from. What exists is kept."""

from __future__ import annotations

from pathlib import Path

from etl.cli import output, process
from etl.core.errors import ConfigError

TEMPLATES = Path(__file__).parent / "templates"
FILES = {"cuetl.toml": "cuetl.toml", ".gitignore": "gitignore", "pipelines/shop_orders.py": "pipeline"}
"""Name in the new folder → name of its template."""


def init(folder: Path | None, /, *, debug: bool) -> None:
    """Write `cuetl.toml`, `.gitignore` and a running pipeline into a folder, which is made when it is missing.

    Raises:
        ConfigError: The folder is a file or cannot be written.
    """
    process.prepare(None, debug=debug)
    into = folder or Path()
    try:
        into.mkdir(parents=True, exist_ok=True)
        for name, template in FILES.items():
            text = (TEMPLATES / template).read_text(encoding="utf-8")
            (into / name).parent.mkdir(exist_ok=True)
            try:
                with (into / name).open("x", encoding="utf-8") as file:
                    file.write(text)
            except FileExistsError:
                output.text(f"kept   {into / name}")
            else:
                output.text(f"wrote  {into / name}")
    except OSError as error:
        raise ConfigError(f"{into} cannot be written: {error.strerror}", hint="Name another folder.") from error
    output.text("next:  cuetl demo, then: cuetl inspect shop, cuetl run shop_orders")
