"""The code that a project runs is the code that was approved: pins, digests, protected programs."""
