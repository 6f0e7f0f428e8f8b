"""What the web page alone needs of the server: its files, login, and the stream of what changes."""
