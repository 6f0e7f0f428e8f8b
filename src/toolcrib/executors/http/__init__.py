"""Kind `http`: one request by template, one value from the answer."""
