"""The part of the server that the web page alone needs: its files, login, and the stream of what changes."""
