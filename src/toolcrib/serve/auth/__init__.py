"""The clients of a server on the network: tokens, login links, sessions, checks of Host and Origin."""

from toolcrib.serve.auth.access import Access, Client
from toolcrib.serve.auth.oauth import OAuthResource, OutsideTokens
from toolcrib.serve.auth.origin import TrustedHosts
from toolcrib.serve.auth.sessions import LoginSessions
