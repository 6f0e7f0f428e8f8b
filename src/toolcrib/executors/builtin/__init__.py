"""Kind `builtin`: a function of the same toolset under another name."""
