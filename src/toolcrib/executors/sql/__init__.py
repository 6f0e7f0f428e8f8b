"""Kind `sql`: run one SQL statement."""
