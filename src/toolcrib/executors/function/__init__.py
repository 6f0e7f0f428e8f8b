"""Registered Python callables: inline, in a thread, or in a process."""
