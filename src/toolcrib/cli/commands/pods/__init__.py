"""Commands for agents in pods."""
