"""Calls that outlive their process: stored before they run, recorded once, taken over from dead workers."""

from toolcrib.runs.calls import ClaimedCall, DurableCalls
from toolcrib.runs.history import CallAttempt, CallChange, DurableCall

__all__ = ["CallAttempt", "CallChange", "ClaimedCall", "DurableCall", "DurableCalls"]
