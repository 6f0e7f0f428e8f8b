"""Tools: identity, execution, permissions, rules for calls. Pure data."""
