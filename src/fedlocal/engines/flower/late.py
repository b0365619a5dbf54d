"""LateSites: a site that is connected and does not answer makes everybody wait. It is asked less and less often."""

from collections.abc import Sequence


class LateSites:
    """After the n-th time in a row without an answer a site is not asked for 2^(n-1) - 1 rounds.

    >>> late = LateSites()
    >>> late.note(["b"], ["a", "c"], done=0)
    >>> late.without(["a", "b", "c"], done=1, least=2)
    ['a', 'b', 'c']
    >>> late.note(["b"], ["a", "c"], done=1)
    >>> late.without(["a", "b", "c"], done=2, least=2), late.without(["a", "b", "c"], done=3, least=2)
    (['a', 'c'], ['a', 'b', 'c'])
    """

    def __init__(self) -> None:
        self._times: dict[str, int] = {}  # rounds in a row without an answer
        self._until: dict[str, int] = {}  # the round in which it is asked again

    def note(self, silent: Sequence[str], answered: Sequence[str], done: int) -> None:
        """Remember who answered and who did not."""
        for site in answered:
            self._times.pop(site, None)
            self._until.pop(site, None)
        for site in silent:
            self._times[site] = self._times.get(site, 0) + 1
            self._until[site] = done + 2 ** (self._times[site] - 1)

    def without(self, sites: Sequence[str], done: int, least: int) -> list[str]:
        """The sites that are asked in this round; all of them where the others are too few."""
        asked = [site for site in sites if self._until.get(site, 0) <= done]
        return asked if len(asked) >= least else list(sites)
