"""The clients of a server on the network: tokens, login links, sessions, checks of Host and Origin."""

from toolcrib.serve.auth.access import NOBODY, Access, Client, LoginSessions, TrustedHosts, bearer
from toolcrib.serve.auth.oauth import OAuthResource, OutsideTokens
