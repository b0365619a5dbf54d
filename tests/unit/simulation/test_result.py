"""Parameters as safetensors."""

import importlib
import json
import struct
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import fedlocal as fl
from conformance.federation import federation


def result_of(x: Any) -> fl.Result:
    """A result with these parameters."""
    result = fl.simulate(federation(), fl.methods.FedAvg(0.05), rounds=1, local_steps=1, progress=False)
    return fl.Result(**{**vars(result), "x": x})


def test_parameters_are_read_by_safetensors_to_the_bit(tmp_path: Path):
    numpy = pytest.importorskip("safetensors.numpy", reason="needs the extra safetensors")
    matrix = np.arange(6.0).reshape(2, 3)
    x = {
        "layers": [{"w": matrix.T, "b": np.array([1, np.nan], np.float32)}, (np.array(0.1),)],
        "half": np.array([2.0], np.float16),
    }
    result_of(x).save_parameters(tmp_path / "new" / "x.safetensors")
    read = numpy.load_file(tmp_path / "new" / "x.safetensors")
    expected = {
        "layers/0/w": matrix.T,
        "layers/0/b": x["layers"][0]["b"],
        "layers/1/0": np.array(0.1),
        "half": x["half"],
    }
    assert read.keys() == expected.keys()
    for name, array in expected.items():
        assert read[name].dtype == array.dtype
        assert read[name].shape == array.shape
        np.testing.assert_array_equal(read[name], array)


def test_a_single_array_is_called_value_and_the_file_is_as_its_format_says(tmp_path: Path):
    pytest.importorskip("safetensors.numpy", reason="needs the extra safetensors")
    result_of(jnp.array([1.0, 2.0])).save_parameters(tmp_path / "x.safetensors")
    content = (tmp_path / "x.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    assert json.loads(content[8 : 8 + length]) == {"value": {"dtype": "F64", "shape": [2], "data_offsets": [0, 16]}}
    assert np.frombuffer(content[8 + length :]).tolist() == [1.0, 2.0]


def test_parameters_of_a_run_come_back_under_their_names(tmp_path: Path):
    numpy = pytest.importorskip("safetensors.numpy", reason="needs the extra safetensors")
    result = fl.simulate(federation(), fl.methods.FedAvg(0.05), rounds=1, local_steps=1, progress=False)
    result.save_parameters(tmp_path / "x.safetensors")
    read = numpy.load_file(tmp_path / "x.safetensors")
    assert {name: a.tolist() for name, a in read.items()} == {name: a.tolist() for name, a in result.x.items()}


def test_two_parameters_with_one_path_are_told(tmp_path: Path):
    pytest.importorskip("safetensors.numpy", reason="needs the extra safetensors")
    with pytest.raises(
        ValueError, match=r"save_parameters: two parameters have the same path; the paths are \['a/b'\]"
    ):
        result_of({"a": {"b": np.ones(1)}, "a/b": np.ones(2)}).save_parameters(tmp_path / "x")


def test_without_the_package_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    found = importlib.import_module

    def refuse(name: str) -> Any:
        if name.startswith("safetensors"):
            raise ModuleNotFoundError("No module named 'safetensors'", name="safetensors")
        return found(name)

    monkeypatch.setattr("fedlocal.util.optional.import_module", refuse)
    with pytest.raises(ModuleNotFoundError, match=r'needs safetensors: pip install "fedlocal\[safetensors\]"'):
        result_of(np.ones(1)).save_parameters(tmp_path / "x")
