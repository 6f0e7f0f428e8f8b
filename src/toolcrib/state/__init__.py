"""What outlives a process: a project's database, and what its user keeps outside of every project."""

from toolcrib.state.database import Database, Transaction
from toolcrib.state.vault import Vault

__all__ = ["Database", "Transaction", "Vault"]
