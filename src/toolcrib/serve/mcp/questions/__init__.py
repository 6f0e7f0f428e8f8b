"""Questions to the user of a client while a call runs: approvals, and those of tools."""
