"""The lists that MCP clients get (tools, prompts, resources), and notifications that one has changed."""

from toolcrib.serve.mcp.lists.changes import ListChanges
from toolcrib.serve.mcp.lists.listing import (
    DEFAULT_PAGE_SIZE,
    PARAM_PREFIX,
    AdvertisedTool,
    CallerListing,
    Listings,
    ListName,
    ParamHeader,
)
