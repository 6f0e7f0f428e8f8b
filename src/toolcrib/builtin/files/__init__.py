"""Built-in tools that read and write files, all beneath the configured folders."""
