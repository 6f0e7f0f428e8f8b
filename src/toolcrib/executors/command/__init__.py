"""Kind `command`: run a program."""
