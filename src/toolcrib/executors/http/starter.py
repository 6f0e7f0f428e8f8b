"""The first manifest of an HTTP tool."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from toolcrib.errors import UsageError
from toolcrib.manifest.starter import Answers, Made

_BARE = re.compile(r"(?<!\$)\{+\w*\}+")


def make(answers: Answers) -> Made:
    """Return a GET request of the URL; arguments without a placeholder go into its query."""
    runs = answers.runs
    try:
        host = urlsplit(runs).hostname
    except ValueError:  # such as an unclosed bracket
        host = None
    if not runs.startswith(("https://", "http://")) or not host or "$" in host:
        hint = "--run 'https://api.example.com/v1/${id}'"
        raise UsageError("an HTTP tool needs a URL that begins with https:// and a host", hint=hint)
    if bare := _BARE.search(runs):
        hint = f"Write ${{{bare[0].strip('{}')}}}"
        raise UsageError(f"`{bare[0]}` is not a placeholder", hint=hint)
    url, _, query = runs.partition("?")
    pairs = dict(pair.partition("=")[::2] for pair in query.split("&") if pair)
    pairs |= {name: f"${{{name}}}" for name in answers.arguments if f"${{{name}}}" not in runs}
    block = {"method": "GET", "url": url, **({"query": pairs} if pairs else {})}
    return Made(block, {"network": {"allow": [host]}})
