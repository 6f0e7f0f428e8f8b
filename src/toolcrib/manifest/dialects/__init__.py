"""Formats of other tool systems, each read into the native form."""
