"""What the compiled loops of the network engine work on.

All numbers of a network are in one flat array, layer after layer: the panels of its weights, then its biases, both padded with
zero columns to whole vectors. Places are counted in numbers.
"""

from typing import NamedTuple

import numpy as np

# what becomes of the weights (not the biases) of each layer: nothing, a ball in a norm, or l1 |w| + l2/2 w^2
FREE, L1_BALL, L2_BALL, ELASTIC = range(4)


Shape = tuple[
    tuple[int, ...], tuple[int, ...], tuple[int, ...]
]  # lengths: examples of a tile, lanes, vectors of a panel


class NetworkExamples(NamedTuple):
    """The data of all clients."""

    features: np.ndarray  # (n width,) each padded to whole vectors
    labels: np.ndarray  # (n,)


class Minibatches(NamedTuple):
    """Clients and minibatches of some rounds."""

    drawn: np.ndarray  # (R, S, K, B) rows of the data
    shares: np.ndarray  # (R, S, K, B) weights of the examples; empty where all minibatches are full
    clients: np.ndarray  # (R, S)
    weights: np.ndarray  # (R, S) of the mean
    steps: np.ndarray  # (M,)
    first: int  # round


class Layers(NamedTuple):
    """The layers of a network, each (L,)."""

    fan_in: np.ndarray
    fan_out: np.ndarray
    vectors: np.ndarray  # of a row of weights
    weights: np.ndarray  # place of the weights
    bias: np.ndarray  # place of the biases
    packed: np.ndarray  # place of a layer's packed inputs in `NetworkNumbers.packed`
    outputs: np.ndarray  # place of its outputs in `NetworkNumbers.outputs`


class Cells(NamedTuple):
    """The numbers of the methods, one entry for each cell."""

    step: np.ndarray  # length of a local step
    keep: np.ndarray  # V <- keep V + take mean(S - V) after the local steps
    take: np.ndarray
    strengths: np.ndarray  # (cells, 2) of what clients apply: the radius of a ball, or l1 and l2
    server_strengths: np.ndarray  # (cells, 2) of what the server applies
    server_step: np.ndarray


class NetworkNumbers(NamedTuple):
    """What the threads write. W is the size of a network, T the threads."""

    cells: Cells
    server: np.ndarray  # (cells W + slack,)
    walked: np.ndarray  # (cells,) float32, the step length that dual averaging has walked
    diverged: np.ndarray  # (cells,) the round after which a cell was not finite, or -1
    totals: np.ndarray  # ((cells + T) W,) sums of the clients' changes; a thread's own is for a cell that is cut
    cut: np.ndarray  # (T,) the cell that a thread began in its midst, or -1
    begins: np.ndarray  # (cells, L, 2) threshold and scale of the weights with which clients begin
    states: np.ndarray  # (T W + slack,); dual averaging: (2 T W + slack,), then the points at which gradients are taken
    maps: np.ndarray  # (T, L, 3) threshold and scale of the weights, a guess of the next threshold
    packed: np.ndarray  # (T packed,) inputs of all layers
    compacted: (
        np.ndarray
    )  # (T (features R + lanes),) packed inputs of the first layer that are not zero in all examples
    listed: np.ndarray  # (T 2 features,) which these are, and which not
    given: np.ndarray  # (T,) how many there are, or -1 where all inputs are taken
    outputs: np.ndarray  # (T outputs,) of all layers, and then the loss's derivatives by them before max(., 0)
    turned: np.ndarray  # (T turned,) derivatives of one layer, packed
    rows: np.ndarray  # (T examples,) rows of the data in a minibatch
    counting: np.ndarray  # 0, 1, 2, ... for the widest layer
    padding: np.ndarray  # (2, columns of the last layer) 0 and -1e30 where there is no class; 1 and 0


class NetworkSizes(NamedTuple):
    """What does not change from round to round."""

    cells: int
    threads: int
    numbers: int  # W
    packed: int  # numbers of a thread's `packed`
    outputs: int
    turned: int
    examples: int  # of a minibatch, up to whole tiles
    batch: int
    features: int  # of an example, padded
    compacted: int  # numbers of a thread's `compacted`; 0 where features are rarely zero
    psi: int  # kind of the regulariser
    dual: bool  # the gradient is at the proximal map of the state
    on_clients: bool  # clients apply the regulariser
    on_server: bool  # the server ends its step with a proximal map
    layers: Layers
    lanes: tuple[int, ...]  # its length is that of a vector
    shapes: tuple[Shape, Shape]  # of panels, and of the last vector where panels have two
    short_shapes: tuple[Shape, Shape]  # the same for minibatches of few examples
