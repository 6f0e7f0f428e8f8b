"""The server side: launchers, spare sandboxes, and the run of one command."""
