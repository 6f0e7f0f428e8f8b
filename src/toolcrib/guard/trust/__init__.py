"""Trust in settings, reviews of tools, digests and tokens."""
