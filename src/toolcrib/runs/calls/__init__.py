"""Durable calls: stored before they run, changed by their callers, by workers and by decisions."""

from toolcrib.runs.calls.changes import ClaimedCall
from toolcrib.runs.calls.durable import DurableCalls
