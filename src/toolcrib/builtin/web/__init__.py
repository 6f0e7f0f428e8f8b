"""Built-in tools that use the network, all through the guarded client."""
