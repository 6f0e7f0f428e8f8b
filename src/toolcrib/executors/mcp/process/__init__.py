"""The process of a local MCP server: confined or not, its pipes, and the accesses that it was refused."""
