"""What a printed table must show of a data frame."""

import pandas as pd

from fedlocal.report.tables import table


def check_unbroken(frame: pd.DataFrame, said: str, width: int = 80) -> None:
    """Fail if a number of the frame or a word of its headers is cut or stands on two lines.

    Args:
        frame: rows and columns.
        said: what was printed.
        width: characters of the screen.
    """
    words = said.split()
    for column in table(frame, "").columns:
        for word in [*column.name.split(), *(column.texts if column.numeric else [])]:
            assert word == "" or word in words, (column.name, word, said)
    rules = [line for line in said.splitlines() if set(line.strip()) == {"─"}]
    assert max(map(len, rules)) <= width, said
