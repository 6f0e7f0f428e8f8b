"""Settings of a project: `config.yml`, each part read strictly."""
