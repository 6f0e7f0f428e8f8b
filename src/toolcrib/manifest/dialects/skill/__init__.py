"""Agent Skills: folders with a SKILL.md."""
