"""The registry of data sets. A new data set is an entry here.

A data set that can be downloaded has `sources` and a function of `_formats` that reads them. A data
set without sources has no public source in this form and must be provided as a file.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from marginpursuit.datasets import _formats
from marginpursuit.datasets._formats import Arrays

__all__ = ["REGISTRY", "Entry", "Source"]


@dataclass(frozen=True)
class Source:
    """An original file of a data set.

    Attributes
    ----------
    url : str
        Its address.
    sha256 : str or None
        Its hash; None if unknown.
    """

    url: str
    sha256: str | None = None

    @property
    def file_name(self) -> str:
        """The last part of the address."""
        return self.url.rsplit("/", 1)[1]


@dataclass(frozen=True)
class Entry:
    """A data set.

    Attributes
    ----------
    description : str
        Content, origin and licence, if known.
    shape : tuple of int
        Rows and columns.
    sha256 : str or None
        Hash of the ``.npz`` file.
    content_sha256 : str or None
        Hash of its arrays, independent of the compression.
    sources : sequence of Source
        The original files.
    read : callable or None
        Reads these files into arrays.
    bundled : callable or None
        Returns the arrays of a data set included with scikit-learn.
    positive : int or None
        The positive class of the one-against-rest task; None if y is used unchanged.
    groups : str or None
        Name of the array with the group of each row.
    paper_size : int or None
        Number of training rows in the paper.
    """

    description: str
    shape: tuple[int, int]
    sha256: str | None = None
    content_sha256: str | None = None
    sources: Sequence[Source] = ()
    read: Callable[[Sequence[Path]], Arrays] | None = None
    bundled: Callable[[], Arrays] | None = None
    positive: int | None = None
    groups: str | None = None
    paper_size: int | None = None


def _uci(path: str) -> str:
    return f"https://archive.ics.uci.edu/ml/machine-learning-databases/{path}"


def _libsvm(name: str) -> str:
    return f"https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/{name}"


def _mnist(name: str) -> str:
    return f"https://ossci-datasets.s3.amazonaws.com/mnist/{name}"


def _lightgbm(name: str) -> str:
    base = "https://raw.githubusercontent.com/microsoft/LightGBM/v4.5.0/examples"
    return f"{base}/binary_classification/{name}"


def _breast_cancer() -> Arrays:
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    return {"X": X, "y": (2 * y - 1).astype(np.int8)}


def _digits() -> Arrays:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return {"X": X.astype(np.uint8), "y": y.astype(np.int8)}


def _iris() -> Arrays:
    from sklearn.datasets import load_iris

    found = load_iris()
    return {
        "X": found.data,
        "y": found.target.astype(np.int8),
        "target_names": np.asarray(found.target_names, dtype=np.str_),
    }


def _wine() -> Arrays:
    from sklearn.datasets import load_wine

    X, y = load_wine(return_X_y=True)
    return {"X": X, "y": y.astype(np.int8)}


#: Every data set, by the name that `load` takes: description, shape, hashes and sources.
#:
#: >>> from marginpursuit.datasets import REGISTRY
#: >>> REGISTRY["cov"].shape
#: (581012, 54)
REGISTRY: dict[str, Entry] = {
    "cov": Entry(
        "Forest CoverType (Blackard and Dean 1998, UCI, CC BY 4.0): class 1, spruce and fir, "
        "against the rest.",
        shape=(581012, 54),
        sha256="45b957764c8c6709916a75ae1b9438cc9752692e48cae01bf4695a6d9d0abafb",
        content_sha256="12aaa7a6f3f8539ee7da1777c989ae239b0fdeaa8496ee492ce5dbb564f4ca4f",
        sources=[Source(_uci("covtype/covtype.data.gz"))],
        read=_formats.cover_type,
        positive=1,
        paper_size=540,
    ),
    "digit5": Entry(
        "MNIST handwritten digits (LeCun, Cortes and Burges, usually stated as CC BY-SA 3.0): the "
        "digit 5 against the rest.",
        shape=(70000, 784),
        sha256="3344907a1bd67bed87e957ad3810aedf696aef34fac7ccb2cd360b13ec290bb2",
        content_sha256="9f74ed7fbafcad08bd37358691f5fa39cbe3f0f32560012fb38f033cc229edda",
        sources=[
            Source(
                _mnist("train-images-idx3-ubyte.gz"),
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            ),
            Source(
                _mnist("train-labels-idx1-ubyte.gz"),
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            ),
            Source(
                _mnist("t10k-images-idx3-ubyte.gz"),
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            ),
            Source(
                _mnist("t10k-labels-idx1-ubyte.gz"),
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
        ],
        read=_formats.handwritten_digits,
        positive=5,
        paper_size=5000,
    ),
    "protein": Entry(
        "Protein homology, training file of KDD Cup 2004 (Caruana and Joachims; no explicit "
        "licence, research use): homologous to the block's native sequence or not. The blocks are "
        "the groups: all rows of a block belong to the same side of a split.",
        shape=(145751, 74),
        sha256="fc8e9c67d4f183f50bc42e8b77fe6c28261f1667eb9f8bc9af7f4cf5244ccfc4",
        content_sha256="3a171ab1f35f3e5b582a09d944d2116c9df1e9ad3b58c5457b44e7a31adda992",
        sources=[Source("https://kdd.org/cupfiles/KDDCupData/2004/data_kddcup04.tar.gz")],
        read=_formats.protein_homology,
        groups="block_id",
        paper_size=740,
    ),
    "sido": Entry(
        "SIDO0, molecular descriptors and activity against HIV (causality challenge, NIPS 2008; no "
        "explicit licence, research use): the labelled training part.",
        shape=(12678, 4932),
        sources=[Source("http://www.causality.inf.ethz.ch/data/sido0_text.zip")],
        read=_formats.challenge,
        paper_size=425,
    ),
    "hiva": Entry(
        "HIVA, molecular descriptors and activity against HIV (agnostic learning challenge, "
        "2006-07; no explicit licence, research use): the labelled training part. Of the same "
        "origin as sido, but a different data set.",
        shape=(3845, 1617),
        sha256="1b393d029f3d6dd899ebdb6b28102f9b895d9340cd153676fc9f22f7f2e80320",
        content_sha256="32616df7cc92c0600df12a0f8b01dc8d4fd412079bd741f9277230a6b25be734",
        sources=[Source("http://www.agnostic.inf.ethz.ch/datasets/DataAgnos/HIVA.zip")],
        read=_formats.challenge,
    ),
    "a9a": Entry(
        "Adult (Kohavi and Becker, UCI, CC BY 4.0) in Platt's binary coding: income above 50,000.",
        shape=(48842, 123),
        sha256="cd3f2619c99061a0d49e5e0f79f9b4d7208cb42edb33eb377c13c7fb2444bcc3",
        content_sha256="a09da23415d8a645c43098c36f4b6f4ffb3997041fe91b5c6529fd0497315f17",
        sources=[Source(_libsvm("a9a")), Source(_libsvm("a9a.t"))],
        read=_formats.svmlight_parts,
    ),
    "spambase": Entry(
        "Spambase (Hopkins et al. 1999, UCI, CC BY 4.0): spam or not, from word frequencies.",
        shape=(4601, 57),
        sha256="d53c514d203a5d90b2b1857567c35443eae7b66602842af7d17fa9a1da341e0d",
        content_sha256="8d0d80afe4202822652c4e545e94e05e40d844280325a292908554eb5c8d27ab",
        sources=[Source(_uci("spambase/spambase.data"))],
        read=_formats.labelled_csv,
    ),
    "higgs_small": Entry(
        "A small part of HIGGS (Baldi, Sadowski and Whiteson 2014, UCI, CC BY 4.0), as selected "
        "and rounded for the examples of LightGBM.",
        shape=(7500, 28),
        sha256="6212119ed813dfb843d941034a682ebb5aac16263dab0a5cd25b064faf798c62",
        content_sha256="e4c40266243681dbcb63e52d3700ab97ce7caf0da7770499de99dc27b01e4736",
        sources=[
            Source(_lightgbm("binary.train")),
            Source(_lightgbm("binary.test")),
        ],
        read=_formats.higgs,
    ),
    "reuters": Entry(
        "Reuters-21578, ModApte split (free for research): category money-fx against the rest, "
        "TF-IDF rows of unit length, as distributed with LASVM.",
        shape=(11069, 8315),
        sha256="cedc012d3b9380f7a9778070c57a0f885e8e7f57ae319f73938a91d66c3eb43a",
        content_sha256="c5d2e2c1a7b77029bd71aa9ba67a51c112bf6fc9831c3429b839952d48ccc14a",
    ),
    "news20": Entry(
        "20 Newsgroups, split by date (Lang; Rennie; UCI lists it as CC BY 4.0): word counts, 20 "
        "classes.",
        shape=(18846, 130107),
        sha256="fcdffd63d8f2b20e4abfb15a44fb06fe94b779f626737f349719c40e143844a1",
        content_sha256="07c9257d7073a4ff0fd561afad44b95d98e7af3b97d3569ddf237394b2f6af3b",
    ),
    "news20_minilm": Entry(
        "The messages of news20 as sentence embeddings (all-MiniLM-L6-v2, Apache-2.0), 20 classes.",
        shape=(18846, 384),
        sha256="3b2032c5b08574a9e7d943dfed6f87c713d2b63c97e6c9627b9cce52563e5042",
        content_sha256="e815cddf18bce44c391af995a3216d0bc8de88be4b806d2270b226e9b7261534",
    ),
    "breast_cancer": Entry(
        "Breast cancer Wisconsin (UCI, CC BY 4.0), included with scikit-learn: benign or not.",
        shape=(569, 30),
        bundled=_breast_cancer,
    ),
    "digits": Entry(
        "Optical recognition of handwritten digits (UCI, CC BY 4.0), included with "
        "scikit-learn: the digit 5 against the rest.",
        shape=(1797, 64),
        bundled=_digits,
        positive=5,
    ),
    "iris": Entry(
        "Iris (Fisher 1936, UCI, CC BY 4.0), included with scikit-learn: three species.",
        shape=(150, 4),
        bundled=_iris,
    ),
    "wine": Entry(
        "Wine (Aeberhard and Forina, UCI, CC BY 4.0), included with scikit-learn: three cultivars.",
        shape=(178, 13),
        bundled=_wine,
    ),
}
