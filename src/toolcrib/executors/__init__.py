"""Executors: each runs one attempt of one tool, whatever kind it is.

A kind is one folder with its record in `kind.py`; `toolcrib.manifest.KINDS` finds it by name.
"""

from toolcrib.executors.host import Host

__all__ = ["Host"]
