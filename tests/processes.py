"""Processes of tests that run a function: each is forked from one process that has imported the package."""

from __future__ import annotations

import multiprocessing
from multiprocessing.context import ForkServerContext

FORKS: ForkServerContext = multiprocessing.get_context("forkserver")
"""A process of this context takes 10 ms, and 500 ms when started anew. It shares no memory with the tests."""
FORKS.set_forkserver_preload(["pytest", "psycopg", "tests.guarded", "toolcrib.runs"])
