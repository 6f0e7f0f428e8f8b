"""Kind `composite`: other tools, called in steps."""
