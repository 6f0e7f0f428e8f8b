"""Addresses and requests of HTTP tools as manifests write them."""
