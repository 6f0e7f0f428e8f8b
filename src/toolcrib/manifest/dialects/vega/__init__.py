"""The Vega dialect: its form, reader and writer."""
