"""Commands that show tools, records and this machine."""
