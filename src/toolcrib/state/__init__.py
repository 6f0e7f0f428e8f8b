"""What outlives a process: a project's database, and what its user keeps outside of every project."""

from toolcrib.state.database import Database, Transaction
from toolcrib.state.holder import boot_id, is_alive, me, uptime
from toolcrib.state.identifier import new_id
from toolcrib.state.private import read_private, write_private
from toolcrib.state.tables import PROJECT, VAULT_GRANTS
from toolcrib.state.user import user_name
from toolcrib.state.vault import Vault
from toolcrib.state.watch import Watch

__all__ = [
    "PROJECT",
    "VAULT_GRANTS",
    "Database",
    "Transaction",
    "Vault",
    "Watch",
    "boot_id",
    "is_alive",
    "me",
    "new_id",
    "read_private",
    "uptime",
    "user_name",
    "write_private",
]
