"""`toolcrib convert`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolcrib.cli.output import json_option, note, printable, say, write_json

if TYPE_CHECKING:
    from toolcrib.manifest.convert import Written

__all__ = ["command"]


@click.command("convert")
@click.argument("file", type=click.Path())
@click.option(
    "--to", "target", required=True, metavar="FORMAT", help="native, vega, flexigpt, sympozium or toolbox."
)
@click.option("--from", "origin", metavar="FORMAT", help="The file's own format; found out without it.")
@click.option("--only", metavar="NAME", help="Only the tool of this name.")
@click.option(
    "--output", type=click.Path(), metavar="PATH", help="Write a file, or of several tools a folder for each."
)
@json_option
def command(
    file: str, target: str, origin: str | None, only: str | None, output: str | None, as_json: bool
) -> int:
    """Write the tools of FILE in another format, and say what gets lost.

    One tool goes to standard output; nothing that exists is overwritten. What is lost, and what that means,
    is told on standard error, and nothing there when nothing is. Exit 4 where a tool cannot be said in that
    format, or a call of it would do something else.
    """
    from toolcrib.errors import NotFoundError, UsageError
    from toolcrib.manifest import DIALECTS, read
    from toolcrib.manifest.convert import convert, read_all

    try:
        raw = read(file)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(f"there is no file {file}") from None
    tools = [tool for tool in read_all(file, raw, origin) if only in (None, tool.name)]
    if not tools:
        raise NotFoundError(f"{file} holds no tool" + (f" called {only}" if only else ""))
    written = [convert(tool, target) for tool in tools]
    if output is None and len(written) > 1 and not as_json:
        names = ", ".join(one.tool.name for one in written)
        raise UsageError(
            f"{file} holds {len(written)} tools: {names}", hint="Say --only NAME or --output FOLDER."
        )
    paths: list[Path | None] = [None] * len(written)
    if output is not None:
        paths = list(_put(written, Path(output), DIALECTS[target].file_name))
    if as_json:
        write_json({"to": target, "tools": [_row(*pair) for pair in zip(written, paths, strict=True)]})
        return 0
    for one, path in zip(written, paths, strict=True):
        if path is None:
            say(one.text.decode(), nl=False)
        else:
            note(f"created {printable(str(path))}")
        for loss in one.losses:
            note(printable(f"{one.tool.name}: {loss}"))
    return 0


def _row(one: Written, path: Path | None) -> dict[str, Any]:
    return {
        "name": one.tool.name,
        "path": None if path is None else str(path),
        "text": one.text.decode(),
        "losses": [loss.as_dict() for loss in one.losses],
    }


def _put(written: list[Written], output: Path, file_name: str) -> list[Path]:
    """Write each text to a file that was not there before."""
    from toolcrib.errors import ConflictError, UsageError

    several = len(written) > 1 or output.is_dir()
    if several:
        for name in (one.tool.name for one in written):
            if "/" in name or "\0" in name or name.startswith("."):
                raise UsageError(f"{name!r} cannot be the name of a file", hint="Say a file: --output FILE.")
    paths = [output / file_name.format(name=one.tool.name) if several else output for one in written]
    taken = [str(path) for path in paths if path.exists() or path.is_symlink()]
    if taken:
        raise ConflictError(f"there is something already: {', '.join(taken)}", hint="Give another --output.")
    for one, path in zip(written, paths, strict=True):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                file.write(one.text)
        except OSError as error:
            raise ConflictError(f"{path} cannot be written: {error.strerror}") from None
    return paths
