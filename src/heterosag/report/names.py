"""Names and texts as they are shown: what a terminal or a page cannot hold is replaced.

The name of a run is that of its folder, in which a file system allows nearly everything: escape sequences that a
terminal would follow, and bytes that are no text, which Python keeps as surrogates and no page can be encoded with.
"""

from __future__ import annotations

import unicodedata

__all__ = ["printable"]

_REPLACED = {"Cc", "Cs", "Zl", "Zp"}  # control characters, surrogates, separators of lines and paragraphs


def printable(text: object, *, keep: str = "") -> str:
    """A text in which every control character and every surrogate is replaced by U+FFFD.

    Args:
        text: A name, a path, or a whole page.
        keep: Control characters that it may have.

    Returns:
        The text, of the same length.

    Example:
        >>> from heterosag.report.names import printable
        >>> printable("one\\x1b[31m") == "one\\ufffd[31m"
        True
    """
    given = str(text)
    unwanted = {char for char in set(given) if unicodedata.category(char) in _REPLACED} - set(keep)
    return given.translate(dict.fromkeys(map(ord, unwanted), "\N{REPLACEMENT CHARACTER}"))
