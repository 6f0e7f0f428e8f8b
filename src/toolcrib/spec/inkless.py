"""Characters that nobody sees, though Unicode counts them as letters, marks or symbols.

Code and instructions can be hidden in a long run of them: an interpreter and a model read them.
"""

from __future__ import annotations

import re

INKLESS = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0d\uffa0\U000e0100-\U000e01ef]"
    # These two choose the form of an emoji or a keycap, one after each.
    "|(?<![\u00a9\u00ae\u203c-\u3299\U0001f000-\U0001faff])[\ufe0e\ufe0f](?!\u20e3)"
)
"""Finds one such character: blank letters and variation selectors (Default_Ignorable_Code_Point)."""
