"""`edit_file`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolcrib.builtin.definition import Builtin, boolean, string
from toolcrib.builtin.site import Site
from toolcrib.errors import InvalidInput, TooLarge, Violation
from toolcrib.sandbox import Roots
from toolcrib.spec import Annotations, CallContext, Example, Permissions

MAX_BYTES = 10_000_000


async def edit_file(site: Site, ctx: CallContext, path: str, edits: Sequence[dict[str, Any]]) -> str:
    """Make all edits of a file, or none."""

    def edit(roots: Roots, place: str) -> int:
        with roots.alone(place):  # An edit at the same time begins when this one has written.
            return change(roots, place)

    def change(roots: Roots, place: str) -> int:
        content = roots.read(place, 0, MAX_BYTES)
        if content.total > MAX_BYTES:
            raise TooLarge(f"{path} is larger than {MAX_BYTES:,} bytes, so it cannot be edited")
        try:
            text = content.data.decode()
        except UnicodeDecodeError:
            raise InvalidInput(f"{path} is not UTF-8 text, so it cannot be edited") from None
        text, count = _edited(text, edits)
        roots.write(place, text.encode())
        return count

    count = await site.in_files(ctx, path, "write", edit)
    return f"Made {count} replacement{'' if count == 1 else 's'} in {path}"


def _edited(text: str, edits: Sequence[dict[str, Any]]) -> tuple[str, int]:
    """Return the text after all edits, each applied to the result of those before, and their number."""
    wrong, count = [], 0
    for number, edit in enumerate(edits):
        found = text.count(edit["old"])
        if found == 0:
            wrong.append(Violation(f"$.edits[{number}].old", "does not occur in the file"))
        elif found > 1 and not edit.get("all"):
            message = f"occurs {found} times; give more of the text around it, or set all"
            wrong.append(Violation(f"$.edits[{number}].old", message))
        else:
            text = text.replace(edit["old"], edit["new"])
            count += found
    if wrong:
        first = wrong[0]
        raise InvalidInput(f"nothing was changed: {first.path} {first.message}", violations=tuple(wrong))
    return text, count


BUILTIN = Builtin(
    name="edit_file",
    description=(
        "Replace parts of a text file. All edits are made, in their order, or none:"
        " each `old` must occur in the file, and exactly once unless `all` is true."
    ),
    properties={
        "path": string("The file, relative to the workspace; it must exist."),
        "edits": {
            "type": "array",
            "minItems": 1,
            "description": "The edits, made one after the other.",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["old", "new"],
                "properties": {
                    "old": string("The exact text to replace.", minLength=1),
                    "new": string("The text in its place."),
                    "all": boolean("true: replace every occurrence (default false).", default=False),
                },
            },
        },
    },
    run=edit_file,
    permissions=lambda settings: Permissions(read=settings.read, write=settings.write),
    annotations=Annotations(read_only=False, destructive=True, idempotent=False, open_world=False),
    examples=[
        Example("Replace one word", {"path": "notes/todo.md", "edits": [{"old": "teh", "new": "the"}]})
    ],
)
