"""The registry of data sets: sizes, sources, licences and checksums."""

from collections import ChainMap
from dataclasses import dataclass

COLLECTION = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/"
UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/"
TFF = "https://storage.googleapis.com/tff-datasets-public/"
PYMVPA = "http://data.pymvpa.org/datasets/haxby2001/"


@dataclass(frozen=True)
class Dataset:
    """A data set in one file; by default a file of the LIBSVM collection."""

    rows: int
    features: int
    address: str  # empty if it cannot be fetched
    size: int | None  # of the file in bytes; None if not known
    sha256: str | None  # of the file; None: the first fetched file is trusted
    source: str  # and licence
    converted: str = ""  # the stem of the files in the cache that replace it
    shelf: str = "libsvm"  # the subfolder in which it may be
    reader: str = "read_libsvm"  # the function of fl.data that reads it without verifying it
    kept_as: str = ""  # the name of the file if there is no address
    instead: str = ""  # what to use without the file if there is no address

    @property
    def file(self) -> str:
        return self.kept_as or self.address.rpartition("/")[2]


CATALOGUE = {
    "a9a": Dataset(
        rows=32_561,
        features=123,
        address=COLLECTION + "binary/a9a",
        size=2_329_875,
        sha256="f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906",
        source="UCI Adult, CC BY 4.0",
    ),
    "a9a.t": Dataset(
        rows=16_281,
        features=123,
        address=COLLECTION + "binary/a9a.t",
        size=1_164_628,
        sha256="1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9",
        source="UCI Adult, CC BY 4.0",
    ),
    "w8a": Dataset(
        rows=49_749,
        features=300,
        address=COLLECTION + "binary/w8a",
        size=3_478_238,
        sha256="6a9fa8fd5f524303240a5db07d4b3d4a51e8b7b4b20a914105d8e3e8c81640f2",
        source="Platt 1998, web pages; no licence stated",
    ),
    "mushrooms": Dataset(
        rows=8_124,
        features=112,
        address=COLLECTION + "binary/mushrooms",
        size=879_712,
        sha256="f39a4eb628dc61a7d43760815b061c9e497aa728ce1ad8bde57a09ef6043b538",
        source="UCI Mushroom, CC BY 4.0",
    ),
    "ijcnn1": Dataset(
        rows=49_990,
        features=22,
        address=COLLECTION + "binary/ijcnn1.bz2",
        size=1_395_175,
        sha256="b38a4198ce142d43e96fb86d17b87211feec1f909ac344fa057455c69de29de3",
        source="IJCNN 2001 challenge; no licence stated",
    ),
    "news20": Dataset(
        rows=15_935,
        features=62_061,
        address=COLLECTION + "multiclass/news20.bz2",
        size=2_376_572,
        sha256="8c79851f6f5fdc5540a0d04a5ab728353c42d26b84e73f93bda301c06c15ffe9",
        source="20 Newsgroups; no licence stated",
    ),
    "epsilon": Dataset(
        rows=400_000,
        features=2_000,
        address=COLLECTION + "binary/epsilon_normalized.bz2",
        size=None,
        sha256=None,
        source="PASCAL challenge 2008; no licence stated",
        converted="epsilon",
    ),
}
HEART = {  # the files of `fl.data.hospital`
    f"heart-{hospital}": Dataset(
        rows=rows,
        features=13,
        address=f"{UCI}heart-disease/processed.{hospital}.data",
        size=size,
        sha256=sha256,
        source="UCI Heart Disease, CC BY 4.0",
        shelf="heart",
        reader="heart.read_hospital",
    )
    for hospital, rows, size, sha256 in (
        ("cleveland", 303, 18_461, "a74b7efa387bc9d108d7d0115d831fe9b414b29ae7124f331b622b4efa0427c8"),
        ("hungarian", 294, 10_263, "d1ad108f785768cd3d7e82dc522e6f5a61eea93cccfb3a46ee8076f73fc3d796"),
        ("switzerland", 123, 4_109, "834a405ccf5b66ab4056bb77794adc8df0b7125186454c0a1d002d33c6c3b314"),
        ("va", 200, 6_737, "e7c93d8d0d2acdadfa4c5e8de768e2191e7f618b952e29623f1f0d5949ff6b8f"),
    )
}
HAXBY = {  # the files of `fl.data.haxby`
    "haxby-vt": Dataset(
        rows=864,
        features=577,
        address="",
        size=636_874,
        sha256="7debf0136c23a1e0901148e8d9599150d8b2fccfb9a3dea3688f9b5d9389b0dd",
        source="Haxby et al. 2001, one subject, CC BY-SA 3.0",
        shelf="haxby2001",
        reader="read_haxby_array",
        kept_as="haxby2001_subj1_vt.npz",
        instead="read the scans themselves, which can be fetched, with the source 'images' of fl.data.haxby",
    ),
    **{
        f"haxby-{subject}": Dataset(
            rows=1_452,
            features=39_912,
            address=f"{PYMVPA}subj{subject}-2010.01.14.tar.gz",
            size=None,
            sha256=None,
            source="Haxby et al. 2001, CC BY-SA 3.0",
            shelf="haxby2001",
            reader="read_haxby_images",
        )
        for subject in range(1, 7)
    },
    "haxby-mask": Dataset(
        rows=1,
        features=39_912,
        address="https://www.nitrc.org/frs/download.php/7868/mask.nii.gz",
        size=None,
        sha256=None,
        source="nilearn, mask of the whole brain for Haxby's scans",
        shelf="haxby2001",
        reader="read_haxby_images",
    ),
}
HANDWRITING = {  # the files of `fl.data.mnist_by_writer` and `fl.data.femnist`
    "mnist-by-writer": Dataset(
        rows=70_000,
        features=784,
        address="",
        size=11_552_101,
        sha256="405534e7bcd8461d67cdbeda4527471eaa4b30837782a6071877f8f687f8369d",
        source="MNIST, with writers from QMNIST (BSD-style)",
        reader="read_mnist_by_writer",
        kept_as="mnist_by_writer.npz",
        instead="use fl.data.digits, which needs no file",
    ),
    **{
        name: Dataset(
            rows=rows,
            features=784,
            address=f"{TFF}{file}",
            size=None,
            sha256=sha256,  # as in TensorFlow Federated's own loader
            source="LEAF from EMNIST, as in TensorFlow Federated; no licence stated",
            shelf="femnist",
            reader="read_femnist, unpacked",
        )
        for name, rows, file, sha256 in (
            (
                "femnist-digits",
                382_705,
                "fed_emnist_digitsonly.tar.bz2",
                "55333deb8546765427c385710ca5e7301e16f4ed8b60c1dc5ae224b42bd5b14b",
            ),
            (
                "femnist",
                749_068,
                "fed_emnist.tar.bz2",
                "fe1ed5a502cea3a952eb105920bff8cffb32836b5173cb18a57a32c3606f3ea0",
            ),
        )
    },
}
KNOWN = ChainMap(HANDWRITING, HAXBY, HEART, CATALOGUE)  # all that can be fetched; `load` reads those of CATALOGUE
