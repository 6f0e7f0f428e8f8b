"""Routes about agents, workflows, sessions and runs."""
