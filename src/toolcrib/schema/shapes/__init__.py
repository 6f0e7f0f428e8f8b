"""JSON Schema in the words of model providers, each of which supports a part of it."""
