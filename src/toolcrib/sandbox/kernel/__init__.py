"""Interfaces of the Linux kernel: Landlock, seccomp, control groups, mounts, network."""
