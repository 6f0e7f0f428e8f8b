"""The tools of a project: registry, external tools, reload."""
