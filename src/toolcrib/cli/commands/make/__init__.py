"""Commands that make and check tools."""
