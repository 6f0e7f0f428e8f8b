"""Commands for servers, tokens and secrets."""
