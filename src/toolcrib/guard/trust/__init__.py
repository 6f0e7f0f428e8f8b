"""Trust, digests, and access tokens."""
