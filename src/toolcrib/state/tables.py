"""The tables of a project's database and of its user's databases, as migrations: one script a version.

Decisions of people are only in the user's own folder. The project's database holds requests that wait for a
decision, the results of calls with an idempotency key, and how often tools were called.
"""

from __future__ import annotations

from toolcrib.state.outgoing.outbox import MESSAGES, OUTBOX

PROJECT: tuple[str, ...] = (
    """
CREATE TABLE approvals (
    id TEXT PRIMARY KEY,
    question TEXT NOT NULL,
    status TEXT NOT NULL,
    tool TEXT NOT NULL,
    bundle TEXT NOT NULL,
    tool_digest TEXT NOT NULL,
    arguments BLOB NOT NULL,
    asker TEXT NOT NULL,
    caller TEXT NOT NULL,
    owner TEXT NOT NULL,
    token TEXT,
    session_id TEXT,
    rule TEXT NOT NULL,
    reason TEXT NOT NULL,
    touches TEXT NOT NULL,
    call_id TEXT,
    asked_at REAL NOT NULL,
    expires_at REAL NOT NULL,
    size INTEGER NOT NULL,
    wakes INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX approvals_question ON approvals (question) WHERE status = 'pending';
CREATE INDEX approvals_asker ON approvals (asker, size) WHERE status = 'pending';
CREATE INDEX approvals_expiry ON approvals (expires_at) WHERE status = 'pending';
CREATE INDEX approvals_tool ON approvals (tool, bundle, tool_digest) WHERE status = 'pending';
CREATE INDEX approvals_open ON approvals (id) WHERE status IN ('pending', 'approved');
CREATE INDEX approvals_decided ON approvals (id) WHERE wakes = 1 AND status <> 'pending';
CREATE TABLE starts (
    tool TEXT NOT NULL,
    boot TEXT NOT NULL,
    at REAL NOT NULL
);
CREATE INDEX starts_tool ON starts (tool, at);
CREATE TABLE leases (
    id TEXT PRIMARY KEY,
    tool TEXT NOT NULL,
    holder TEXT NOT NULL,
    at REAL NOT NULL
);
CREATE INDEX leases_tool ON leases (tool);
CREATE TABLE recorded (
    caller TEXT NOT NULL,
    name TEXT NOT NULL,
    tool TEXT NOT NULL,
    arguments_digest TEXT NOT NULL,
    state TEXT NOT NULL,
    claim TEXT NOT NULL,
    holder TEXT NOT NULL,
    result BLOB,
    size INTEGER NOT NULL,
    begun_at REAL NOT NULL,
    ended_at REAL,
    PRIMARY KEY (caller, name)
);
CREATE INDEX recorded_end ON recorded (ended_at);
CREATE TABLE calls (
    id TEXT PRIMARY KEY,
    tool TEXT NOT NULL,
    arguments BLOB NOT NULL,
    caller TEXT NOT NULL,
    idempotency_key TEXT,
    repeatable INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    state TEXT NOT NULL,
    ready_at REAL NOT NULL,
    epoch INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    snoozes INTEGER NOT NULL,
    rescues INTEGER NOT NULL,
    worker TEXT,
    holder TEXT,
    lease_ends_at REAL,
    result BLOB,
    error TEXT,
    submitted_at REAL NOT NULL,
    ended_at REAL,
    context TEXT NOT NULL DEFAULT '{}',
    session_id TEXT,
    run_id TEXT,
    approval TEXT,
    room TEXT
);
CREATE UNIQUE INDEX calls_key ON calls (caller, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX calls_ready ON calls (ready_at) WHERE state = 'ready';
CREATE INDEX calls_running ON calls (lease_ends_at) WHERE state = 'running';
CREATE INDEX calls_of_tool ON calls (tool) WHERE state = 'running';
CREATE INDEX calls_waiting ON calls (approval) WHERE state = 'waiting';
CREATE INDEX calls_room ON calls (room, id) WHERE state = 'waiting' AND room IS NOT NULL;
CREATE INDEX calls_run ON calls (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX calls_state ON calls (state, id);
CREATE INDEX calls_caller ON calls (caller, id);
CREATE INDEX calls_tool ON calls (tool, id);
CREATE INDEX calls_session ON calls (session_id, id) WHERE session_id IS NOT NULL;
CREATE INDEX calls_ended ON calls (ended_at) WHERE run_id IS NULL AND ended_at IS NOT NULL;
CREATE TABLE call_attempts (
    call_id TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    worker TEXT NOT NULL,
    began_at REAL NOT NULL,
    ended_at REAL,
    ending TEXT,
    reason TEXT,
    PRIMARY KEY (call_id, epoch)
);
CREATE TABLE call_events (
    call_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    at REAL NOT NULL,
    kind TEXT NOT NULL,
    PRIMARY KEY (call_id, number)
);
CREATE TABLE deliveries (
    entry TEXT NOT NULL,
    key TEXT NOT NULL,
    priority INTEGER NOT NULL,
    ready_at REAL NOT NULL,
    due INTEGER NOT NULL,
    PRIMARY KEY (entry, key)
);
CREATE INDEX deliveries_due ON deliveries (entry, priority DESC, ready_at, key) WHERE due = 1;
CREATE INDEX deliveries_later ON deliveries (ready_at) WHERE due = 0;
CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    caller TEXT NOT NULL,
    metadata TEXT NOT NULL,
    active_run TEXT,
    created_at REAL NOT NULL
);
CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL,
    root_id TEXT NOT NULL,
    parent_id TEXT,
    depth INTEGER NOT NULL,
    agent TEXT NOT NULL,
    definition TEXT NOT NULL,
    provider TEXT NOT NULL,
    caller TEXT NOT NULL,
    identity TEXT,
    variables TEXT NOT NULL,
    prompt TEXT NOT NULL,
    streams INTEGER NOT NULL,
    state TEXT NOT NULL,
    ready_at REAL NOT NULL,
    epoch INTEGER NOT NULL,
    iteration INTEGER NOT NULL,
    open_calls INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    rescues INTEGER NOT NULL,
    worker TEXT,
    holder TEXT,
    lease_ends_at REAL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cost_usd REAL,
    active_s REAL NOT NULL,
    answer TEXT,
    error TEXT,
    forked_from TEXT,
    created_at REAL NOT NULL,
    ended_at REAL,
    trace TEXT
);
CREATE INDEX runs_session ON runs (session_id, id);
CREATE INDEX runs_root ON runs (root_id, id);
CREATE INDEX runs_parent ON runs (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX runs_ready ON runs (ready_at) WHERE state = 'ready';
CREATE INDEX runs_state ON runs (state, id) WHERE parent_id IS NULL;
CREATE INDEX runs_agent ON runs (agent, id);
CREATE INDEX runs_caller ON runs (caller, id);
CREATE INDEX runs_ended ON runs (ended_at)
    WHERE parent_id IS NULL AND ended_at IS NOT NULL AND state <> 'failed';
CREATE INDEX runs_failed ON runs (state, ended_at) WHERE parent_id IS NULL AND state = 'failed';
CREATE INDEX runs_running ON runs (lease_ends_at) WHERE state = 'running';
CREATE TABLE run_iterations (
    run_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    live INTEGER NOT NULL,
    model TEXT NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cost_usd REAL,
    began_at REAL NOT NULL,
    answered_at REAL NOT NULL,
    ended_at REAL,
    PRIMARY KEY (run_id, number)
);
CREATE TABLE run_uses (
    run_id TEXT NOT NULL,
    iteration INTEGER NOT NULL,
    position INTEGER NOT NULL,
    use_id TEXT NOT NULL,
    name TEXT NOT NULL,
    arguments TEXT NOT NULL,
    call_id TEXT,
    child_id TEXT,
    answer TEXT,
    ended_at REAL,
    PRIMARY KEY (run_id, iteration, position)
);
CREATE UNIQUE INDEX run_uses_call ON run_uses (call_id) WHERE call_id IS NOT NULL;
CREATE UNIQUE INDEX run_uses_child ON run_uses (child_id) WHERE child_id IS NOT NULL;
CREATE TABLE run_messages (
    run_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    iteration INTEGER NOT NULL,
    live INTEGER NOT NULL,
    kind TEXT NOT NULL,
    content BLOB NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (run_id, number)
);
CREATE TABLE run_events (
    number INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL,
    root_id TEXT NOT NULL,
    at REAL NOT NULL,
    kind TEXT NOT NULL,
    iteration INTEGER NOT NULL,
    detail TEXT NOT NULL
);
CREATE INDEX run_events_run ON run_events (run_id, number);
CREATE INDEX run_events_root ON run_events (root_id, number);
CREATE TABLE known_tools (
    name TEXT PRIMARY KEY,
    digest TEXT NOT NULL,
    definition TEXT NOT NULL
);
CREATE TABLE workers (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    process TEXT NOT NULL,
    tools TEXT NOT NULL,
    refused TEXT NOT NULL,
    running INTEGER NOT NULL,
    began_at REAL NOT NULL,
    seen_at REAL NOT NULL
);
"""
    + OUTBOX
    + MESSAGES,
)
"""`state.db` in the project's home folder. `approvals.wakes` marks those that calls wait for."""

VAULT_GRANTS: tuple[str, ...] = (
    """
CREATE TABLE grants (
    id TEXT PRIMARY KEY,
    answer TEXT NOT NULL,
    state TEXT NOT NULL,
    scope TEXT NOT NULL,
    tool TEXT NOT NULL,
    bundle TEXT NOT NULL,
    tool_digest TEXT NOT NULL,
    arguments_digest TEXT NOT NULL,
    asker TEXT NOT NULL,
    caller TEXT NOT NULL,
    session_id TEXT,
    rule TEXT NOT NULL,
    edited BLOB,
    decided_by TEXT NOT NULL,
    decided_at REAL NOT NULL,
    ends_at REAL,
    note TEXT NOT NULL,
    used_at REAL,
    mac TEXT NOT NULL DEFAULT '',
    used_by TEXT
);
CREATE INDEX grants_exact ON grants (arguments_digest, tool) WHERE state = 'live';
CREATE INDEX grants_standing ON grants (tool, scope) WHERE state = 'live' AND scope IN ('session', 'rule');
CREATE INDEX grants_tool ON grants (tool, bundle, tool_digest)
    WHERE state = 'live' AND answer = 'approved';
CREATE INDEX grants_newest ON grants (state, decided_at, id);
CREATE INDEX grants_used ON grants (used_by) WHERE used_by IS NOT NULL;
CREATE TABLE switches (
    bundle TEXT NOT NULL,
    tool TEXT NOT NULL,
    enabled INTEGER NOT NULL,
    switched_by TEXT NOT NULL,
    switched_at REAL NOT NULL,
    mac TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (bundle, tool)
);
""",
)
"""`grants.db` in the user's own folder for the project. `mac` binds a decision to a key, and `used_by` names
the call that has used one up. A row of `switches` without a tool is that of a bundle."""

VAULT_TRUST: tuple[str, ...] = (
    """
CREATE TABLE trusted (
    id TEXT PRIMARY KEY,
    subject TEXT NOT NULL,
    bundle TEXT NOT NULL,
    digest TEXT NOT NULL,
    source TEXT NOT NULL,
    shown TEXT NOT NULL,
    trusted_by TEXT NOT NULL,
    trusted_at REAL NOT NULL,
    channel TEXT NOT NULL,
    until REAL
);
CREATE INDEX trusted_subject ON trusted (subject, bundle, digest);
CREATE TABLE texts (
    sha256 TEXT PRIMARY KEY,
    content BLOB NOT NULL
);
CREATE TABLE made (
    id TEXT PRIMARY KEY,
    tool TEXT NOT NULL,
    maker TEXT NOT NULL,
    manifest TEXT NOT NULL,
    made_at REAL NOT NULL
);
CREATE INDEX made_tool ON made (tool, id);
CREATE TABLE created (
    path TEXT PRIMARY KEY,
    tool TEXT NOT NULL,
    created_at REAL NOT NULL
);
""",
)
"""`trust.db` in the same folder: what a person has accepted, the tools that agents made, and the
files that calls have created and that start other programs."""
