"""FlexiGPT: tool.json."""
