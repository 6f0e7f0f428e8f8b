"""Policy rules and the permission ceiling of a project."""
