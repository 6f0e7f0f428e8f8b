"""Search over the tools of a project."""
