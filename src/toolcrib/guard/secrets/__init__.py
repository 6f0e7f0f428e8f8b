"""Secret values: their sources, and their masking in everything that leaves."""
