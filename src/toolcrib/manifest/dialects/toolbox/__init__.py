"""MCP Toolbox for Databases: tools.yaml."""
