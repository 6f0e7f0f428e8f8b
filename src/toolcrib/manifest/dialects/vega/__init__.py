"""The Vega dialect: its form, its reader, and its tools in native terms."""
