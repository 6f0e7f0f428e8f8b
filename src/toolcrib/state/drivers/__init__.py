"""The databases that can hold a project's state: a SQLite file, a Postgres server."""
