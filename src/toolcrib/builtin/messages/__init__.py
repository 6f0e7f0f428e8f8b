"""Built-in tools that send messages to people."""
