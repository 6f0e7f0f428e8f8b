"""Command lines of local MCP servers: the program that a launcher such as `npx` runs, and what it reads."""
