"""The outbox of a database, and the messages to people in it."""
