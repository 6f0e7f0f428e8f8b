"""Calls that outlive their process: stored before they run, recorded once, taken over from dead workers."""

from toolcrib.runs.calls import ClaimedCall, DurableCalls, Ended, entry_of
from toolcrib.runs.dispatch import Dispatcher, EmbeddedDispatcher, Take, Work
from toolcrib.runs.history import CallAttempt, CallChange, CallState, DurableCall
from toolcrib.runs.worker import Worker, identity_as_json

__all__ = [
    "CallAttempt",
    "CallChange",
    "CallState",
    "ClaimedCall",
    "Dispatcher",
    "DurableCall",
    "DurableCalls",
    "EmbeddedDispatcher",
    "Ended",
    "Take",
    "Work",
    "Worker",
    "entry_of",
    "identity_as_json",
]
