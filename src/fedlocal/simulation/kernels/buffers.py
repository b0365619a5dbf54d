"""What the compiled loops of the linear engine work on.

The last axis of an array of numbers is the lane: runs with different numbers that take the same examples side by side.
Arrays of numbers are flat, (rows, L), with named places: loops that do not slice compile many times faster, and run faster too.
Numba counts no references here (`jit.OPTIONS`), so that a function may take these tuples whole and read what it needs.
"""

from typing import NamedTuple

import numpy as np

# kinds: one vector, two, one seen through a proximal map, one with it after every step
ONE, PAIR, DUAL, MIRROR = range(4)


class Rows(NamedTuple):
    """The examples: a CSR matrix, or a dense one where `starts` and `columns` are None."""

    starts: np.ndarray | None  # (n + 1,)
    columns: np.ndarray | None  # (nnz,)
    values: np.ndarray | None  # (nnz,), or (n d,); None where all are one
    targets: np.ndarray  # (n,)


class ClientSchedule(NamedTuple):
    """Where minibatches come from: the rows that JAX drew, or, where there are none, the same random bits made here."""

    drawn: np.ndarray  # (R, S, K, B)
    shares: np.ndarray  # (R, S, K, B) weights of the examples; empty where all minibatches are full
    clients: np.ndarray  # (R, S)
    weights: np.ndarray  # (R, S) of the mean
    starts: np.ndarray  # (M,)
    sizes: np.ndarray  # (M,)
    steps: np.ndarray  # (M,)
    seed: np.uint32
    first: np.uint32  # round


class Places(NamedTuple):
    """The first rows of what is kept in `Numbers.local` and `Numbers.server`; s is the size of a client's state, v the
    server's. The local linear part is kept aside: S = A^k U for k < period, then U is renewed.
    """

    query: int  # (period, s) query' A^k; for DUAL (K,) 1 / (1 + l2 walked), made anew every round
    gain: int  # (period, s) A^-(k+1) gain
    powers: int  # (period + 1, s, s) A^k
    free_query: int  # (s,) the intercept has no penalty and is not kept aside
    free_transition: int  # (s, s)
    free_gain: int  # (s,)
    jump: int  # (2, s, s) A^K and its free counterpart, for rounds with all gradients at one point
    threshold: int  # (K,) DUAL: the gradient is at clip(query_k soft(y, threshold_k)); made anew every round
    decay: int  # (K + 1,) MIRROR: k steps without gradient take x to soft(decay_k x, shrink_k), but for the bounds
    shrink: int  # (K + 1,)
    bounds: int  # (2,)
    start: int  # (s, v) S = start V before the local steps
    keep: int  # (v, v) V <- keep V + take mean(S) after them, then the proximal map where there is one
    take: int  # (v, s)
    step: int  # length that a local step walks
    server_step: int
    strengths: int  # (2,) l1 and l2 of psi
    server_bounds: int  # (2,)


class Numbers(NamedTuple):
    """The methods of all lanes, and what the threads write."""

    local: np.ndarray  # see Places
    server: np.ndarray  # in float64
    vectors: np.ndarray  # (v width, L) the server's
    walked: np.ndarray  # (T, L) float64; each thread has its own
    diverged: np.ndarray  # (T, L) the round after which a lane was not finite, or -1; each thread has its own
    finite: np.ndarray  # (T, L) whether a thread's columns are
    beginning: np.ndarray  # (s width, L) what every client begins with
    point: np.ndarray  # (width, L) where it takes its gradients, when they are all at one point
    states: np.ndarray  # (T G s width, L)
    stamps: np.ndarray  # (T G width,) MIRROR: up to which step a coordinate has been taken
    totals: np.ndarray  # (T s width, L) float64
    after: np.ndarray  # (T v, L) float64
    changes: np.ndarray  # (T G B, L) scores of a minibatch, then slopes
    drawn: np.ndarray  # (T G K B,)
    by_steps: np.ndarray  # (T (K + 1),) weight of the clients that take so many steps
    examples: np.ndarray  # (E,) examples of a round whose gradients are all at one point
    amounts: np.ndarray  # (E,) float64 and what they weigh
    counts: np.ndarray  # (T n,) float64; empty where examples are listed as they are drawn


class Sizes(NamedTuple):
    """What does not change from round to round."""

    size: int  # s
    number: int  # v
    width: int  # features, and one for the intercept
    dimension: int  # features
    threads: int
    in_step: int  # G
    period: int
    most_steps: int  # K
    batch: int  # examples of a minibatch; 0 for all of the client's
    most_examples: int  # B: examples of the largest minibatch
    logistic: bool  # or least squares
    touched: bool  # only what a client touched is added up
    frozen: bool  # all gradients of a round are at one point
    proximal: bool  # the server's step ends with a proximal map
    places: Places
    kind: tuple[int, ...]  # its length is the kind of the methods, which the compiler thus knows
    lanes: tuple[int, ...]  # its length is L
