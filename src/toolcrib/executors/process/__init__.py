"""Kinds that run a confined process: command, python, sql."""
