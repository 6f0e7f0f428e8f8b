"""Every channel by its name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from toolcrib.egress import Egress
from toolcrib.pods.channels.channel import Channel, Settings

CHANNELS = {
    "telegram": "telegram:Telegram",
    "discord": "discord:Discord",
    "slack": "slack:Slack",
    "whatsapp": "whatsapp:WhatsApp",
    "webhook": "plain:Webhook",
    "console": "plain:Console",
}


def open_channel(name: str, environment: Mapping[str, str], egress: Egress) -> Channel:
    """Return one channel, set up by its environment variables."""
    module, _, kind = CHANNELS[name].partition(":")
    made = getattr(import_module(f"toolcrib.pods.channels.{module}"), kind)
    channel: Channel = made(Settings(name, {**made.defaults, **environment}), egress)
    return channel
