"""The files and the network that one tool may reach."""
