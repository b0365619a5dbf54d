"""Methods as plain values and back: equal in every leaf, from outside input nothing but what a constructor takes."""

import hashlib
import json
import tomllib
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlocal import methods, mirrors, regularizers
from fedlocal.core import LocalMethod, MirrorMap, Regularizer, Round, static
from fedlocal.methods import FedAvg, FedDualAvg, FedMiD
from fedlocal.methods.method_spec import LIMIT, describe, digest, rebuild, register
from fedlocal.methods.table import ROWS, MethodArguments
from fedlocal.mirrors import DiagonalQuadratic
from fedlocal.regularizers import L1, Blocks, Box, GroupL1, Lp
from unit.regularizers.regularizer_cases import PSIS, shape

NESTED = Blocks({"layers": Blocks({0: L1(0.1), 1: Blocks({"w.x": Lp(0.5, 3.0)})}), "": Box(0, np.inf)})
POINT = np.array([0.4, 0.6, 1.7])
MATRIX = np.array([[0.4, 0.6, 1.7], [1.5, 0.2, 0.1]])

METHODS: list[LocalMethod] = [
    *(row.make(MethodArguments(0.1, 0.7, strong_convexity=0.1, proximity=0.3, regularizer=L1(0.1))) for row in ROWS),
    methods.AGD(smoothness=4.0, strong_convexity=0.3),
    methods.GeneralFedAc(alpha=1.5, beta=2, eta=0.1, gamma=1 / 3),
    methods.FedAc.two(step_size=jnp.float32(0.1), strong_convexity=0.1, local_steps=4),
    FedAvg(jnp.asarray(0.1), jnp.float32(0.7)),
    FedAvg(0.1, 5e-324),
    FedDualAvg(0.1),
    FedDualAvg(0.1, 0.5, L1(0.01), mirrors.PNorm(1.5), prox_on_clients=False),
    FedMiD(0.1, 2.0, L1(jnp.bfloat16(0.3)), mirrors.Entropy()),
    methods.ProximalGradient(0.3, NESTED, mirrors.Euclidean()),
    methods.SubgradientFedAvg(0.3, L1(jnp.asarray(2))),
]
REGULARIZERS: list[tuple[Regularizer, Any]] = [  # and a point to act on
    (NESTED, {"layers": [POINT, {"w.x": POINT, "bias": POINT}], "": -POINT}),
    (Blocks({}), {"a": POINT}),
    (Box(0.5, 1), POINT),
    (Box(-np.inf, np.float32(0.1)), POINT),
    (Box(np.array([[0.1], [0.3]], np.float32), jnp.float64(0.5)), MATRIX),
    (Box(jnp.full((3,), 0.1), np.array([1, 2, 3])), POINT),
    (GroupL1([0.3, 0.1], groups=[0, 1, 0]), POINT),
    (GroupL1(jnp.full((2,), 0.1), groups=[[0, 1, 0], [1, 1, 1]]), MATRIX),
    (L1(np.array([0.1, 0.2, 0.3])), POINT),
    (Lp(0.3, np.inf), POINT),
    *((psi, {"weights": MATRIX.reshape(shape(psi)), "intercept": POINT[0]}) for psi in PSIS.values()),
]
MIRRORS: list[tuple[MirrorMap, Any]] = [
    (DiagonalQuadratic(0.3), POINT),
    (DiagonalQuadratic(jnp.array([0.1, 0.2, 0.3], jnp.float32)), POINT),
    (DiagonalQuadratic({"w": np.array([0.1, 0.2, 0.3]), "intercept": 2}), {"w": POINT, "intercept": POINT}),
    (DiagonalQuadratic((jnp.ones(3), [2.0, 0.3])), (POINT, [POINT, POINT])),
    (mirrors.Entropy(), POINT),
    (mirrors.Euclidean(), POINT),
    (mirrors.PNorm(1.5), POINT),
]
ALL = [*METHODS, *[FedMiD(0.1, 1.0, psi) for psi, _ in REGULARIZERS], *[FedMiD(0.1, mirror_map=h) for h, _ in MIRRORS]]
ALL += [FedMiD(0.1, 1.0, Box((0.1, 0.2, 0.3), [1, 1.0, 2])), FedMiD(0.1, 1.0, Box([[0.1, 0.2]], (1.0, float(np.pi))))]


def name(case: Any) -> str:
    return type(case).__name__


def assert_same(one: Any, other: Any) -> None:
    """Equal, and of the same types: `tree_equal` takes 1 for 1.0 and a weakly typed array for a strongly typed one."""
    assert eqx.tree_equal(one, other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert isinstance(a, jax.Array) == isinstance(b, jax.Array)
        if isinstance(a, jax.Array):
            assert jax.typeof(a) == jax.typeof(b)  # weakly typed or not, too
        elif not isinstance(a, (np.ndarray, np.generic)):
            assert type(a) is type(b)


def round_trip(method: Any) -> Any:
    return rebuild(json.loads(json.dumps(describe(method))))


def assert_refused(description: Any, *words: str) -> None:
    with pytest.raises(ValueError, match=r"^rebuild: ") as caught:
        rebuild(description)
    for word in words:
        assert word in str(caught.value)
    assert len(str(caught.value)) < 2000


# --- what is described


def test_a_description_in_full():
    method = FedDualAvg(0.1, regularizer=L1(0.01), prox_on_clients=False)
    assert describe(method) == {
        "method": "FedDualAvg",
        "method.client_step_size": 0.1,
        "method.server_step_size": 1.0,
        "method.regularizer": "L1",
        "method.regularizer.strength": 0.01,
        "method.mirror_map": "Euclidean",
        "method.prox_on_clients": False,
    }


def test_arrays_groups_and_blocks_in_full():
    psi = Blocks({"w": GroupL1(jnp.float32(0.5), groups=[[0, 1], [1, 0]]), "b": Box(np.array([[1, 2]], np.int32), 3)})
    described = describe(methods.SubgradientFedAvg(0.1, psi))
    below = "method.regularizer.blocks"
    assert {path.removeprefix(below): value for path, value in described.items() if path.startswith(below)} == {
        "": "dict",
        ".keys": ["b", "w"],
        ".0": "Box",
        ".0.lower": "numpy.int32",
        ".0.lower.shape": [1, 2],
        ".0.lower.values": [1, 2],
        ".0.upper": 3,
        ".1": "GroupL1",
        ".1.strength": "jax.float32",
        ".1.strength.values": [0.5],
        ".1.groups": "tuple.int",
        ".1.groups.shape": [2, 2],
        ".1.groups.values": [0, 1, 1, 0],
    }


def test_every_exported_class_is_covered():
    exported = {name for package in (methods, regularizers, mirrors) for name in package.__all__}
    described = {value for method in ALL for value in describe(method).values() if isinstance(value, str)}
    missing = sorted(exported - described)
    assert not missing, f"{missing}: no row in methods/table.py, regularizer_cases.py or MIRRORS"


# --- there and back


@pytest.mark.parametrize("method", ALL, ids=name)
def test_round_trip_through_json(method: LocalMethod):
    description = describe(method)
    text = json.dumps(description)
    assert repr(json.loads(text)) == repr(description)
    assert_same(round_trip(method), method)


@pytest.mark.parametrize("method", ALL, ids=name)
def test_round_trip_through_a_flower_record(method: LocalMethod):
    flwr = pytest.importorskip("flwr.app")
    record = flwr.ConfigRecord(describe(method))
    record.count_bytes()  # which does not take empty lists
    received = flwr.ConfigRecord.inflate(record.deflate())
    assert_same(rebuild(received), method)
    assert digest(received) == digest(describe(method))


def test_round_trip_through_toml():
    description = describe(FedMiD(0.1, 1.0, Box(-np.inf, np.array([0.1, 1e300])), mirrors.PNorm(1.5)))
    text = "\n".join(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in description.items())
    assert_same(rebuild(tomllib.loads(text.replace("Infinity", "inf"))), rebuild(description))


@given(
    st.floats(min_value=0, exclude_min=True, allow_infinity=False), st.floats(allow_nan=False), st.integers(0, 2**60)
)
def test_numbers_come_back_exactly(step: float, bound: float, more: int):
    method = FedMiD(step, regularizer=Box(bound, max(bound, more)))
    again: Any = round_trip(method)
    assert_same(again, method)
    assert again.client_step_size.hex() == step.hex()
    assert float(again.regularizer.lower).hex() == bound.hex()


@settings(max_examples=40, deadline=None)
@given(st.data(), st.sampled_from(["bfloat16", "float16", "float32", "float64", "int8", "int64", "uint32"]))
def test_arrays_come_back_exactly(data: st.DataObject, dtype: str):
    shape = data.draw(st.lists(st.integers(1, 3), max_size=3))
    size = int(np.prod(shape))
    floats = st.floats(0, 60000, width=16) if "float" in dtype else st.integers(0, 100)
    array = np.array(data.draw(st.lists(floats, min_size=size, max_size=size))).reshape(shape).astype(dtype)
    method = FedMiD(0.1, regularizer=Blocks({0: Box(array, np.inf), 1: L1(jnp.asarray(array))}))
    assert_same(round_trip(method), method)


# --- it behaves the same


def short(psi: Regularizer) -> Any:
    """Those with arrays, sequences or fields of the program; of the others the leaves say it all."""
    return () if isinstance(psi, (Blocks, Box, GroupL1, L1)) else pytest.mark.thorough


@pytest.mark.parametrize(("psi", "x"), [pytest.param(*case, marks=short(case[0])) for case in REGULARIZERS], ids=name)
def test_a_rebuilt_regularizer_is_the_same_function(psi: Regularizer, x: Any):
    again: Any = round_trip(FedMiD(0.1, regularizer=psi))
    assert_same(again.regularizer.prox(x, 0.3), psi.prox(x, 0.3))
    assert_same(again.regularizer.value(x), psi.value(x))


@pytest.mark.parametrize(("mirror", "x"), MIRRORS, ids=name)
def test_a_rebuilt_mirror_map_is_the_same_function(mirror: MirrorMap, x: Any):
    again: Any = round_trip(FedMiD(0.1, mirror_map=mirror))
    y = mirror.grad(x)
    assert_same(again.mirror_map.grad(x), y)
    assert_same(again.mirror_map.conjugate_grad(y, L1(0.1), 0.3), mirror.conjugate_grad(y, L1(0.1), 0.3))


def a_round(method: LocalMethod, x: Any) -> Any:
    server = method.init(x)
    client = method.start(method.broadcast(server), method.init_memory(x))
    for _ in range(2):
        client = method.step(client, lambda x: jax.tree.map(lambda a: 2 * a - 1, x))
    message, _ = method.finish(method.broadcast(server), client)
    return client, message, method.solution(method.update(server, message, Round()))


@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("method", [m for m in METHODS if not isinstance(m, methods.ProximalGradient)], ids=name)
def test_a_rebuilt_method_walks_the_same(method: LocalMethod, dtype: Any):
    x = jnp.asarray([0.4, 0.6], dtype)
    assert_same(a_round(round_trip(method), x), a_round(method, x))


def test_a_server_optimizer_stays_on_the_server():
    method = FedAvg(jnp.float32(0.1), server_optimizer=optax.adam(0.3))
    again, x = round_trip(method), jnp.asarray(POINT)
    assert_same(again, FedAvg(jnp.float32(0.1)))
    ours, theirs = a_round(again, x), a_round(method, x)
    assert_same(ours[:2], theirs[:2])  # the client and what it sends
    assert not np.allclose(ours[2], theirs[2])  # the server is another


# --- the name of a description


def test_the_digest_is_that_of_the_canonical_json():
    canonical = b'{"method":"MinibatchSGD","method.step_size":0.5}'
    description = {"method.step_size": 0.5, "method": "MinibatchSGD"}
    assert digest(description) == hashlib.blake2b(canonical, digest_size=8).hexdigest()
    assert digest(description) == digest(describe(methods.MinibatchSGD(0.5)))
    assert digest(description) != digest(describe(methods.MinibatchSGD(np.nextafter(0.5, 1))))


def test_equal_methods_have_one_digest_whatever_the_order_of_their_blocks():
    one, other = Blocks({"a": L1(0.1), "b": Lp(0.1, 2.0)}), Blocks({"b": Lp(0.1, 2.0), "a": L1(0.1)})
    assert digest(describe(FedMiD(0.1, regularizer=one))) == digest(describe(FedMiD(0.1, regularizer=other)))


# --- classes of the user


@register
class Tilted(Regularizer):
    """With a field of each kind, one of them derived."""

    slope: Any
    kind: str = static()
    power: Any = static()
    twice: Any = static()

    def __init__(self, slope: Any, kind: str = "L1", power: int | None = None):
        self.slope, self.kind, self.power = slope, kind, power
        self.twice = 2 * (power or 0)

    def array_value(self, x: jax.Array) -> jax.Array:
        return jnp.sum(self.slope * x)

    def array_prox(self, x: jax.Array, t: Any) -> jax.Array:
        return x - t * self.slope


@pytest.mark.parametrize("psi", [Tilted(1), Tilted(True, kind="str"), Tilted((1.0, (2, ())), kind="é.\n", power=7)])
def test_a_registered_class_comes_back(psi: Tilted):
    method = FedMiD(0.1, regularizer=psi)
    assert_same(round_trip(method), method)
    assert round_trip(method).regularizer.twice == psi.twice


def test_a_string_is_never_taken_for_a_number_or_a_class():
    description = describe(FedMiD(0.1, regularizer=Tilted(1.0, kind="L1")))
    assert (description["method.regularizer.kind"], description["method.regularizer.kind.value"]) == ("str", "L1")
    path = "method.regularizer.slope"
    assert_refused({**description, path: "str", f"{path}.value": "1.0"}, path, "must hold numbers")


def test_an_unregistered_class_is_told_how_to_register():
    class Unknown(FedAvg):
        pass

    with pytest.raises(ValueError, match=r"describe: method .*register\(Unknown\)"):
        describe(Unknown(0.1, 1.0))


def test_a_class_that_was_defined_again_takes_the_place_of_the_old_one():
    def define() -> Any:
        @register
        class Again(FedAvg):
            pass

        return Again

    define()
    assert type(round_trip(define()(0.1))) is not type(round_trip(define()(0.1)))


def test_names_that_are_taken_are_refused():
    with pytest.raises(ValueError, match=r"register: the name 'FedAvg' is taken"):
        register(type("FedAvg", (LocalMethod,), {}))
    with pytest.raises(ValueError, match=r"register: the name 'dict' is taken"):
        register(type("dict", (LocalMethod,), {}))
    assert type(round_trip(FedAvg(0.1))) is FedAvg


@pytest.mark.parametrize("what", [int, print, "FedAvg", eqx.Module])
def test_only_the_vocabulary_is_registered(what: Any):
    with pytest.raises(TypeError, match="register: cls must be a LocalMethod, Regularizer or MirrorMap"):
        register(what)


def test_an_argument_that_is_no_field_is_refused():
    class Hidden(L1):
        def __init__(self, secret: float):
            super().__init__(secret)

    with pytest.raises(ValueError, match="register: Hidden: argument 'secret' must be a field; it has: strength"):
        register(Hidden)


def test_a_constructor_that_changes_its_argument_is_found_on_the_spot():
    @register
    class Squaring(L1):
        def __init__(self, strength: float):
            super().__init__(strength**2)

    with pytest.raises(ValueError, match="strength must be written as"):
        describe(FedMiD(0.1, regularizer=Squaring(3.0)))


def test_what_a_constructor_cannot_know_is_found_on_the_spot():
    @register
    class Counting(L1):
        count: Any

        def __init__(self, strength: float):
            super().__init__(strength)
            self.count = 0.0

    psi = Counting(0.1)
    assert_same(round_trip(FedMiD(0.1, regularizer=psi)).regularizer, psi)
    with pytest.raises(ValueError, match="FedMiD cannot be rebuilt from what it holds"):
        describe(FedMiD(0.1, regularizer=eqx.tree_at(lambda psi: psi.count, psi, 1.0)))


# --- what cannot be described


@pytest.mark.parametrize(
    ("slope", "word"),
    [
        (print, "cannot be described"),
        (np.zeros(0), "cannot be described"),
        (np.array([True]), "cannot be described"),
        (np.array([1j]), "cannot be described"),
        (jax.random.key(0), "cannot be described"),
        (None, "is None"),
        ({1: 1.0, "a": 2.0}, "as keys"),
        (2**70, "64 bits"),
        ("text", "must hold numbers"),
        (np.broadcast_to(1.0, LIMIT + 1), "at most"),
    ],
    ids=str,
)
def test_what_cannot_be_described_says_so(slope: Any, word: str):
    with pytest.raises(ValueError, match=word):
        describe(FedMiD(0.1, regularizer=Tilted(slope)))


def test_a_traced_method_says_so():
    with pytest.raises(ValueError, match=r"method\.client_step_size is only known inside a compiled program"):
        jax.jit(lambda eta: describe(FedAvg(eta)) and eta)(0.1)


def test_nesting_that_never_ends_is_refused():
    psi: Regularizer = L1(0.1)
    for _ in range(50):
        psi = Blocks({"a": psi})
    with pytest.raises(ValueError, match="nested deeper than 64"):
        describe(FedMiD(0.1, regularizer=psi))


# --- hostile input

GOOD = describe(FedMiD(0.1, 1.0, Blocks({"a": L1(0.3), "b": Box(np.array([0.1, 0.2]), 2)}), mirrors.PNorm(1.5)))
LOWER = "method.regularizer.blocks.1.lower"
STRENGTH = "method.regularizer.blocks.0.strength"


@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "__class__",
        "object",
        "eval",
        "LocalMethod",
        "register",
        "fedlocal.methods.FedAvg",
        "fedavg",
        "",
        "numpy.object",
        "numpy.str",
        "jax.key",
        "tuple.str",
        "X" * 10_000,
    ],
)
@pytest.mark.parametrize("path", ["method", "method.regularizer", STRENGTH])
def test_unknown_names_are_refused(name: str, path: str):
    assert_refused({**GOOD, path: name}, path, "not known here", "FedDualAvg", "register")


@pytest.mark.parametrize("name", ["L1", "Euclidean", "dict", "str", "numpy.float32"])
def test_what_is_no_method_is_refused(name: str):
    rest = {"method.strength": 0.1, "method.value": "x", "method.values": [0.5]}
    assert_refused({"method": name, **rest}, "'method' must name a method", "FedDualAvg")


@pytest.mark.parametrize("path", GOOD)
def test_a_missing_key_is_refused(path: str):
    description = {**GOOD}
    del description[path]
    assert_refused(description)


@pytest.mark.parametrize("path", ["__class__", "method.__class__", "method.init", "method.x", f"{LOWER}.values.0", ""])
def test_an_unknown_key_is_refused(path: str):
    assert_refused({**GOOD, path: 1.0}, path, "unknown")


def test_a_derived_field_cannot_be_set():
    description = describe(FedMiD(0.1, regularizer=Tilted(1.0)))
    assert_refused({**description, "method.regularizer.twice": 3}, "method.regularizer.twice", "unknown")


@pytest.mark.parametrize(
    "value", [None, {}, (1.0,), b"1", 1j, [], [1.0, 1], [None], [[1.0]], np.float64(1), np.ones(2)]
)
def test_what_is_not_plain_is_refused(value: Any):
    assert_refused({**GOOD, STRENGTH: value}, STRENGTH, "must be a bool, number, string")


@pytest.mark.parametrize("value", [True, 1, [0.3], "0.3", -0.1, float("nan"), float("inf"), 2**63, "L1", "list"])
@pytest.mark.parametrize("path", ["method.client_step_size", STRENGTH])
def test_what_a_constructor_would_refuse_or_convert_is_refused(path: str, value: Any):
    assert_refused({**GOOD, path: value})


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("method.prox_on_clients", 1),
        ("method.prox_on_clients", "no"),
        ("method.regularizer", 0.3),
        ("method.regularizer", "PNorm"),
        ("method.regularizer", "FedAvg"),
        ("method.mirror_map", "L1"),
        ("method.mirror_map.p", 3.0),
        ("method.regularizer.blocks", "list"),
        ("method.regularizer.blocks", 1.0),
        ("method.regularizer.blocks.0", 0.1),
        ("method.regularizer.blocks.keys", ["a"]),
        ("method.regularizer.blocks.keys", ["a", "a"]),
        ("method.regularizer.blocks.keys", ["b", "a"]),
        ("method.regularizer.blocks.keys", ["a", "b", "c"]),
        ("method.regularizer.blocks.keys", [True, False]),
        ("method.regularizer.blocks.keys", [0.0, 1.0]),
        ("method.regularizer.blocks.keys", "ab"),
        (LOWER, "numpy.float32"),
        (LOWER, "numpy.int8"),
        (LOWER, "tuple"),
        (f"{LOWER}.shape", [3]),
        (f"{LOWER}.shape", [-1]),
        (f"{LOWER}.shape", [-1, -2]),
        (f"{LOWER}.shape", [True, 2]),
        (f"{LOWER}.shape", [2.0]),
        (f"{LOWER}.shape", 2),
        (f"{LOWER}.shape", [2**40, 2**40]),
        (f"{LOWER}.shape", [2] + [1] * 100),
        (f"{LOWER}.values", [0.1, 0.2, 0.3]),
        (f"{LOWER}.values", [0.1, float("nan")]),
        (f"{LOWER}.values", [1, 2]),
        (f"{LOWER}.values", [False, True]),
        (f"{LOWER}.values", ["0.1", "0.2"]),
        (f"{LOWER}.values", [0.1, 3.0]),
        (f"{LOWER}.values", 0.1),
    ],
)
def test_hostile_values_are_refused(path: str, value: Any):
    assert_refused({**GOOD, path: value})


def test_numbers_that_do_not_fit_their_type_are_refused():
    for dtype, value in [("float32", 1e300), ("float16", 0.1), ("int8", 300), ("uint32", -1)]:
        bound = {LOWER: f"numpy.{dtype}", f"{LOWER}.values": [value] * 2, "method.regularizer.blocks.1.upper": np.inf}
        assert_refused({**GOOD, **bound}, f"{LOWER}.values", "must be written as")


@pytest.mark.parametrize(
    "description",
    [
        None,
        [],
        "method",
        3,
        {},
        {"method": None},
        {1: 2},
        {"method": 1.0},
        {"method": "list", "method.length": 10**15},
        {"method": ["FedAvg"]},
        {"method": "list", "method.length": -1},
        {"method": "list", "method.length": True},
    ],
)
def test_what_is_no_description_is_refused(description: Any):
    assert_refused(description)


def test_paths_that_go_too_deep_are_refused():
    description: dict[str, Any] = {"method": "FedMiD", "method.client_step_size": 0.1, "method.server_step_size": 1.0}
    path = "method.regularizer"
    for _ in range(2000):
        description |= {path: "Blocks", f"{path}.blocks": "dict", f"{path}.blocks.keys": ["a"]}
        path += ".blocks.0"
    assert_refused(description, "nested deeper than 64")


def test_absurd_sizes_are_refused_before_anything_is_made():
    assert_refused({**GOOD, f"{LOWER}.values": [0.0] * (LIMIT + 1)}, "at most 10000000")
    assert_refused({**GOOD, "method": "X" * (LIMIT + 1)}, "at most 10000000")


def test_an_array_that_cannot_be_made_here_says_what_to_set():
    double, weak = describe(FedAvg(jnp.float64(0.1))), describe(FedAvg(jnp.asarray(0.1)))
    with jax.enable_x64(False):
        for description in (double, weak):
            assert_refused(description, "method.client_step_size", "jax_enable_x64")
        single = describe(FedAvg(jnp.asarray(0.1)))
        assert_same(rebuild(single), FedAvg(jnp.asarray(0.1)))
    assert_refused(single, "method.client_step_size", "jax_enable_x64")
    one = FedDualAvg(0.1, mirror_map=DiagonalQuadratic(np.array([0.1])))
    assert_same(rebuild(describe(one)), one)


NAMES = ["L1", "Box", "Blocks", "FedAvg", "Zero", "PNorm", "dict", "list", "tuple", "str", "a"]
NAMES += ["numpy.float64", "numpy.int8", "jax.float32", "weak_jax.float64", "tuple.int", "list.float"]
VALUES = st.one_of(
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from(NAMES),
    st.lists(st.integers(-3, 3), max_size=3),
    st.lists(st.floats(), max_size=3),
    st.lists(st.sampled_from(NAMES), max_size=3),
    st.none(),
)
ENDS = ["", ".values", ".shape", ".keys", ".length", ".value", ".0", ".1", ".strength", ".lower", ".upper", ".blocks"]
PATHS = st.tuples(st.sampled_from(list(GOOD)), st.sampled_from(ENDS)).map("".join)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(PATHS, VALUES, max_size=4), st.sets(st.sampled_from(list(GOOD)), max_size=2))
def test_anything_is_either_refused_or_exactly_what_is_described(changed: dict[str, Any], dropped: set[str]):
    description: Any = {
        path: value for path, value in {**GOOD, **changed}.items() if path not in dropped - set(changed)
    }
    try:
        method = rebuild(description)
    except ValueError:
        return
    again = describe(method)
    assert repr(sorted(again.items())) == repr(sorted(description.items()))
