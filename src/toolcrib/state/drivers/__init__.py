"""The databases for a project's state: a SQLite file, a Postgres server."""
