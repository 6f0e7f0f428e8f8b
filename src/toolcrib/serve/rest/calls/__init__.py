"""The part of the REST API that makes calls and follows them."""
