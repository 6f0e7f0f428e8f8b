"""The path of a call and the tools on it: context, pipeline, bound tools, toolset."""
