"""Paths, grants and files opened beneath a folder."""
