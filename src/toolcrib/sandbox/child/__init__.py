"""Code that runs in the launcher and in sandboxed processes. Standard library only."""
