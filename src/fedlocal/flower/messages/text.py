"""Text from another machine is data: it is shown on one line, without control characters, and not at any length."""

import traceback
import unicodedata

LONGEST = 500  # characters


def clean(text: object, longest: int = LONGEST) -> str:
    r"""Return a text as it may be printed, logged and written to a table.

    Control characters (line ends, terminal escapes), marks that change the direction of writing and unassigned characters
    become a question mark, so that no text can look like a line of its own.

    >>> clean("gone\n20:15:01  round 9: done\x1b[2J")
    'gone?20:15:01  round 9: done?[2J'
    """
    text = str(text)[: longest + 1]
    shown = "".join("?" if unicodedata.category(c)[0] in "CZ" and c != " " else c for c in text)
    return shown if len(shown) <= longest else f"{shown[:longest]} ..."


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an error as it may be printed. It may quote another machine, so every line is marked."""
    lines = "".join(traceback.format_exception(error)).splitlines()
    return "\n".join(f"  | {clean(line)}" for line in lines)
