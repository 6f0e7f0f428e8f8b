"""System calls of a watched command, as `toolcrib trace` sees them."""
