"""Agents in pods: the runner, sidecars and the bridge, which exchange files in a folder that they share."""
