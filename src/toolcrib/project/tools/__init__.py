"""The parts that make a project's tools ready to be called."""
