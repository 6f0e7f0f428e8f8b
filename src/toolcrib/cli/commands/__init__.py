"""The commands of `toolcrib`, one module each."""
