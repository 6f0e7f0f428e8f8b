"""What a database sends out: the outbox, and messages to people in it."""
