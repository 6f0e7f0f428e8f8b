"""The proxy of sandboxed processes: HTTP, CONNECT and SOCKS5."""
