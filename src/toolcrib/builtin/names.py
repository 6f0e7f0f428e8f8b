"""The names of all built-in tools, and the folder of each one's module."""

from __future__ import annotations

_FOLDERS = {
    "files": (
        "read_file",
        "write_file",
        "append_file",
        "edit_file",
        "list_files",
        "list_directory",
        "artifact_read",
    ),
    "shell": ("exec", "execute_command"),
    "web": ("fetch_url", "http_request", "web_search"),
    "messages": ("send_email", "send_channel_message"),
}
FOLDER_OF = {name: folder for folder, names in _FOLDERS.items() for name in names}
READER = "artifact_read"
"""Reads on in outputs that were cut, so it is on wherever there are any."""
NAMES = tuple(FOLDER_OF)
"""The names of all built-in tools."""
