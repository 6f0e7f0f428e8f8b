"""Trust: what of a project may run here, why something waits, and how it is shown to a person."""
