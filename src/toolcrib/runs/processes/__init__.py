"""The processes that a worker starts: those that run calls, and the one that makes the steps of runs."""
