"""Sandbox levels: the probe of this machine and the choice for a job."""
