"""Calls and their results: what goes in, what happens meanwhile, what comes out. Pure data."""
