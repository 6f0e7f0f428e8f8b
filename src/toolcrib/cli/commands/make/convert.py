"""`toolcrib import convert`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolcrib.cli.files import write_new
from toolcrib.cli.options import json_option
from toolcrib.cli.output import count, print_json, print_note, print_result
from toolcrib.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from toolcrib.manifest.convert import Written


@click.command("convert")
@click.argument("file", type=click.Path())
@click.option("--to", "target", required=True, metavar="FORMAT", help="native, flexigpt or sympozium.")
@click.option("--from", "origin", metavar="FORMAT", help="The format of FILE (default: detected).")
@click.option("--only", metavar="NAME", help="Convert only the tool NAME.")
@click.option(
    "--output", type=click.Path(), metavar="PATH", help="Write a file; for several tools, a folder for each."
)
@json_option
def command(
    file: str, target: str, origin: str | None, only: str | None, output: str | None, as_json: bool
) -> None:
    """Convert tools to another manifest format and report losses.

    One tool is printed to standard output. Existing files are never overwritten. Losses, and their effect,
    are printed to standard error. Exit 4 if the format cannot express a tool, or would change what it does.
    """
    from toolcrib.manifest import DIALECTS, read
    from toolcrib.manifest.convert import convert, read_all

    try:
        raw = read(file)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(f"there is no file {file}") from None
    tools = [tool for tool in read_all(file, raw, origin) if only in (None, tool.name)]
    if not tools:
        raise NotFoundError(f"there is no tool{f' {only!r}' if only else ''} in {file}")
    written = [convert(tool, target) for tool in tools]
    paths: list[str | None] = [None] * len(written)
    if output is not None:
        paths = [*_write(written, Path(output), DIALECTS[target].file_name)]
    elif len(written) > 1 and not as_json:
        names = ", ".join(one.tool.name for one in written)
        raise UsageError(
            f"{file} has {count(len(written), 'tool')}: {names}", hint="Give --only NAME or --output FOLDER."
        )
    if as_json:
        print_json({"to": target, "tools": [_entry(*pair) for pair in zip(written, paths, strict=True)]})
        return
    for one, path in zip(written, paths, strict=True):
        if path is None:
            print_result(one.text.decode(), nl=False)
        else:
            print_note(f"created {path}")
        for loss in one.losses:
            print_note(f"{one.tool.name}: {loss}")


def _entry(one: Written, path: str | None) -> dict[str, Any]:
    return {
        "name": one.tool.name,
        "path": path,
        "text": one.text.decode(),
        "losses": [loss.as_dict() for loss in one.losses],
    }


def _write(written: list[Written], output: Path, file_name: str) -> list[str]:
    """Write each text to a new file, and return the paths."""
    if len(written) == 1 and not output.is_dir():
        paths = [output]
    else:
        paths = [output / file_name.format(name=one.tool.name) for one in written]
    return write_new({path: one.text for path, one in zip(paths, written, strict=True)})
