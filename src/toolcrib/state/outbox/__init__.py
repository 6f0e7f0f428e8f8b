"""Messages that leave the database once the change that they announce is stored."""
