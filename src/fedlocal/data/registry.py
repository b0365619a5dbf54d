"""The registry of data sets: sizes, sources, licences and checksums."""

from collections import ChainMap
from dataclasses import dataclass, replace
from functools import partial

COLLECTION = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/"
UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/heart-disease/processed."
TFF = "https://storage.googleapis.com/tff-datasets-public/"
PYMVPA = "http://data.pymvpa.org/datasets/haxby2001/"
SHA256 = {  # of the files whose content is known; of another one, the first fetched file is trusted
    "a9a": "f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906",
    "a9a.t": "1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9",
    "w8a": "6a9fa8fd5f524303240a5db07d4b3d4a51e8b7b4b20a914105d8e3e8c81640f2",
    "mushrooms": "f39a4eb628dc61a7d43760815b061c9e497aa728ce1ad8bde57a09ef6043b538",
    "ijcnn1": "b38a4198ce142d43e96fb86d17b87211feec1f909ac344fa057455c69de29de3",
    "news20": "8c79851f6f5fdc5540a0d04a5ab728353c42d26b84e73f93bda301c06c15ffe9",
    "heart-cleveland": "a74b7efa387bc9d108d7d0115d831fe9b414b29ae7124f331b622b4efa0427c8",
    "heart-hungarian": "d1ad108f785768cd3d7e82dc522e6f5a61eea93cccfb3a46ee8076f73fc3d796",
    "heart-switzerland": "834a405ccf5b66ab4056bb77794adc8df0b7125186454c0a1d002d33c6c3b314",
    "heart-va": "e7c93d8d0d2acdadfa4c5e8de768e2191e7f618b952e29623f1f0d5949ff6b8f",
    "haxby-vt": "7debf0136c23a1e0901148e8d9599150d8b2fccfb9a3dea3688f9b5d9389b0dd",
    "mnist-by-writer": "405534e7bcd8461d67cdbeda4527471eaa4b30837782a6071877f8f687f8369d",
    # as in TensorFlow Federated's own loader
    "femnist-digits": "55333deb8546765427c385710ca5e7301e16f4ed8b60c1dc5ae224b42bd5b14b",
    "femnist": "fe1ed5a502cea3a952eb105920bff8cffb32836b5173cb18a57a32c3606f3ea0",
}


@dataclass(frozen=True)
class Dataset:
    """A data set in one file; by default a file of the LIBSVM collection."""

    name: str
    rows: int
    features: int
    source: str  # and licence
    address: str = ""  # empty if it cannot be fetched
    size: int | None = None  # of the file in bytes; None if not known
    converted: str = ""  # the stem of the files in the cache that replace it
    shelf: str = "libsvm"  # the subfolder in which it may be
    reader: str = "read_libsvm"  # the function of fl.data that reads it without verifying it
    kept_as: str = ""  # the name of the file if there is no address
    instead: str = ""  # what to use without the file if there is no address
    sha256: str | None = None  # of the file; None: the first fetched file is trusted

    @property
    def file(self) -> str:
        return self.kept_as or self.address.rpartition("/")[2]


def _named(*datasets: Dataset) -> dict[str, Dataset]:
    return {dataset.name: replace(dataset, sha256=SHA256.get(dataset.name)) for dataset in datasets}


BINARY = COLLECTION + "binary/"
EPSILON = "PASCAL challenge 2008; no licence stated"
CATALOGUE = _named(
    Dataset("a9a", 32_561, 123, "UCI Adult, CC BY 4.0", BINARY + "a9a", 2_329_875),
    Dataset("a9a.t", 16_281, 123, "UCI Adult, CC BY 4.0", BINARY + "a9a.t", 1_164_628),
    Dataset("w8a", 49_749, 300, "Platt 1998, web pages; no licence stated", BINARY + "w8a", 3_478_238),
    Dataset("mushrooms", 8_124, 112, "UCI Mushroom, CC BY 4.0", BINARY + "mushrooms", 879_712),
    Dataset("ijcnn1", 49_990, 22, "IJCNN 2001 challenge; no licence stated", BINARY + "ijcnn1.bz2", 1_395_175),
    Dataset(
        "news20", 15_935, 62_061, "20 Newsgroups; no licence stated", COLLECTION + "multiclass/news20.bz2", 2_376_572
    ),
    Dataset("epsilon", 400_000, 2_000, EPSILON, BINARY + "epsilon_normalized.bz2", converted="epsilon"),
)
_heart = partial(
    Dataset, features=13, source="UCI Heart Disease, CC BY 4.0", shelf="heart", reader="heart.read_hospital"
)
_sizes = {"cleveland": (303, 18_461), "hungarian": (294, 10_263), "switzerland": (123, 4_109), "va": (200, 6_737)}
HEART = _named(  # the files of `fl.data.hospital`
    *(_heart(f"heart-{name}", rows, address=f"{UCI}{name}.data", size=size) for name, (rows, size) in _sizes.items())
)
SUBJECT, BRAIN = "Haxby et al. 2001, CC BY-SA 3.0", "nilearn, mask of the whole brain for Haxby's scans"
MASK = "https://www.nitrc.org/frs/download.php/7868/mask.nii.gz"
_images = partial(Dataset, features=39_912, shelf="haxby2001", reader="read_haxby_images")
HAXBY = _named(  # the files of `fl.data.haxby`
    Dataset(
        "haxby-vt",
        rows=864,
        features=577,
        source="Haxby et al. 2001, one subject, CC BY-SA 3.0",
        size=636_874,
        shelf="haxby2001",
        reader="read_haxby_array",
        kept_as="haxby2001_subj1_vt.npz",
        instead="read the scans themselves, which can be fetched, with the source 'images' of fl.data.haxby",
    ),
    *(_images(f"haxby-{i}", 1_452, source=SUBJECT, address=f"{PYMVPA}subj{i}-2010.01.14.tar.gz") for i in range(1, 7)),
    _images("haxby-mask", 1, source=BRAIN, address=MASK),
)
LEAF = "LEAF from EMNIST, as in TensorFlow Federated; no licence stated"
_leaf = partial(Dataset, features=784, source=LEAF, shelf="femnist", reader="read_femnist, unpacked")
HANDWRITING = _named(  # the files of `fl.data.mnist_by_writer` and `fl.data.femnist`
    Dataset(
        "mnist-by-writer",
        rows=70_000,
        features=784,
        source="MNIST, with writers from QMNIST (BSD-style)",
        size=11_552_101,
        reader="read_mnist_by_writer",
        kept_as="mnist_by_writer.npz",
        instead="use fl.data.digits, which needs no file",
    ),
    _leaf("femnist-digits", 382_705, address=TFF + "fed_emnist_digitsonly.tar.bz2"),
    _leaf("femnist", 749_068, address=TFF + "fed_emnist.tar.bz2"),
)
KNOWN = ChainMap(HANDWRITING, HAXBY, HEART, CATALOGUE)  # all that can be fetched; `load` reads those of CATALOGUE
