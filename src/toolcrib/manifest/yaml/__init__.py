"""YAML and JSON files read strictly, with positions and diagnostics."""
