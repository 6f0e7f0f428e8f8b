"""Checks of manifests that need more than the form of the file."""
