"""Sympozium: SkillPacks."""
