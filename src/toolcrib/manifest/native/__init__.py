"""The native format `tool.yml`: its schema, reader, writer and cache."""
