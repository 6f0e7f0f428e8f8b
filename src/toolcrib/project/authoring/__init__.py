"""Making and checking the tools of a project: new projects, tools made by agents, examples, lint."""
