"""Built-in tools that run a shell line, confined like any command."""
