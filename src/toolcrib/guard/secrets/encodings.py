"""The encodings in which a secret value is found in texts.

| encoding | for the value `a/b"c` |
|---|---|
| plain | `a/b"c` |
| escaped for JSON | `a/b\\"c` |
| percent-encoded, in both cases | `a%2Fb%22c` |
| hexadecimal, in both cases | `612f622263` |
| base64, standard and URL-safe, also within the base64 of longer data | `YS9iImM=`, `EvYiJj`, `hL2IiY` |
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from urllib.parse import quote, quote_plus


def encodings_of(value: str) -> Iterator[str]:
    """Yield every text that a value is searched as, some of them twice."""
    data = _bytes(value)
    yield value
    yield json.dumps(value)[1:-1]
    yield json_escaped(value)
    for url in (quote(data), quote(data, safe=""), quote_plus(data)):
        yield url
        yield re.sub("%..", lambda octet: octet[0].lower(), url)
    yield data.hex()
    yield data.hex().upper()
    for offset in range(3):
        text = base64.b64encode(bytes(offset) + data).decode()
        # The characters at both ends that also depend on other data are left out.
        begin, end = -(-8 * offset // 6), 8 * (offset + len(data)) // 6
        for inner in (text[begin:end], text[begin:].rstrip("="), text[begin:]):
            yield inner
            yield inner.translate(_URL_SAFE)


def json_escaped(text: str) -> str:
    """Return a text as it is within JSON that is not limited to ASCII."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


_URL_SAFE = str.maketrans("+/", "-_")


def _bytes(text: str) -> bytes:
    """Encode as UTF-8; bytes of the environment that are not UTF-8 stay as they are."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return text.encode(errors="surrogatepass")
