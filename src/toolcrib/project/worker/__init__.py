"""Workers of a project: the supervisor and its executor processes."""
