"""A kind of tool and a format for Toolcrib."""
