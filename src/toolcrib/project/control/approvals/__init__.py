"""The approval step of a project's calls, and whom it asks."""
