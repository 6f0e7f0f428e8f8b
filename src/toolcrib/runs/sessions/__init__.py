"""Sessions and agent runs: their rows, every change that one can make, and the events of these changes."""

from toolcrib.runs.sessions.durable import DurableRuns, durable_runs
from toolcrib.runs.sessions.records import ENDED, ClaimedRun, Run, RunEvent, Session, StoredMessage, Usage
from toolcrib.runs.sessions.results import UseEnd, use_ends
from toolcrib.runs.sessions.serving import RunSteps, StepLost
from toolcrib.runs.sessions.store import RunDraft, RunStore
from toolcrib.runs.sessions.transitions import ModelStep, NewUse, RunTransitions
from toolcrib.runs.sessions.tree import RunTree
