"""Calls that outlive their process: stored before they run, recorded once, taken over from dead workers."""

from toolcrib.runs.calls import ClaimedCall, DurableCalls
from toolcrib.runs.dispatch import Delivery, Dispatcher, EmbeddedDispatcher, entry_of
from toolcrib.runs.dispatch_postgres import PgQueuerDispatcher, dispatcher_for
from toolcrib.runs.history import STATES, CallAttempt, CallChange, CallState, CallStatus, DurableCall
from toolcrib.runs.known_tools import KnownTools
from toolcrib.runs.register import Offer, live_workers, reasons_of
from toolcrib.runs.serving import Take, Work
from toolcrib.runs.worker import Worker, worker_name
