"""Kind `file`: read or write one file."""
