"""Third-party MCP servers: started or reached over HTTP, and their tools called as tools of the project."""
