"""Data that outlives a process: a project's database, and the user's own folder outside every project."""

from toolcrib.state.clock import ForwardClock
from toolcrib.state.database import Database, Transaction, ask, take
from toolcrib.state.drivers.dialect import POSTGRES_NOW
from toolcrib.state.drivers.sqlite import SqliteDatabase as SqliteDatabase
from toolcrib.state.outgoing.outbox import Message as Message
from toolcrib.state.outgoing.outbox import Outbox as Outbox
from toolcrib.state.outgoing.outbox import next_number
from toolcrib.state.private import read_private, write_private
from toolcrib.state.process import (
    LEASE_S,
    boot_id,
    has_ended,
    is_alive,
    is_running,
    short_name,
    this_process,
    uptime,
)
from toolcrib.state.tables import PROJECT as PROJECT
from toolcrib.state.tables import VAULT_GRANTS as VAULT_GRANTS
from toolcrib.state.tables import VAULT_TRUST
from toolcrib.state.user_settings import (
    DECISIONS,
    IN_FILE,
    Allowed,
    Decision,
    UserSettings,
    is_database,
    load_user_settings,
    name_database,
    named_database,
    require_database,
    token_refused,
    user_settings_file,
    user_settings_place,
)
from toolcrib.state.vault import Vault, cache_folder, cache_home, data_home, known_projects, user_name
from toolcrib.state.watch import DatabaseWatch
