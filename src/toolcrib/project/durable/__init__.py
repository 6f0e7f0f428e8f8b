"""Calls and runs of a project that are stored before they run."""
