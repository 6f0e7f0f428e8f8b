"""What outlives a process: a project's database, and what its user keeps outside of every project."""

from toolcrib.state.cache import cache_folder, cache_home
from toolcrib.state.database import Database, Transaction
from toolcrib.state.holder import boot_id, is_alive, me, uptime
from toolcrib.state.private import read_private, write_private
from toolcrib.state.tables import PROJECT, VAULT_GRANTS, VAULT_REVIEWS
from toolcrib.state.user import user_name
from toolcrib.state.vault import Vault
from toolcrib.state.watch import Watch

__all__ = [
    "PROJECT",
    "VAULT_GRANTS",
    "VAULT_REVIEWS",
    "Database",
    "Transaction",
    "Vault",
    "Watch",
    "boot_id",
    "cache_folder",
    "cache_home",
    "is_alive",
    "me",
    "read_private",
    "uptime",
    "user_name",
    "write_private",
]
