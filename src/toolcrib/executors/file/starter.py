"""The first manifest of a tool that reads a file."""

from __future__ import annotations

from toolcrib.manifest.starter import Answers, Made


def make(answers: Answers) -> Made:
    """Return a tool that reads any file of one folder, or of those that it may read."""
    folders = [*answers.read] or [answers.runs or "."]
    about = f"The file, from the project root; it is below {' or '.join(folders)}"
    return Made(
        {"action": "read", "path": "${path}"},
        {"fs": {"read": folders, "write": []}},
        properties={"path": {"type": "string", "description": about}},
        sample={"path": f"{folders[0]}/…".removeprefix("./")},
    )
