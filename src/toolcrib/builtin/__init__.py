"""The tools that come with Toolcrib: off until a project, an agent or a team lists them."""
