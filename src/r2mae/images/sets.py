"""The image sets that are known by name."""

from r2mae.catalogue import PublicFile, PublicSet

# The official host (yann.lecun.com) no longer serves the files; this mirror is the one torchvision uses, and
# its files are the official ones (train-images has the published md5 f68b3c2dcbeaaa9fbdd348bbdeb94873).
_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"


def _mnist(name: str, size: int, sha256: str) -> PublicFile:
    return PublicFile(f"mnist/{name}", _MNIST + name, sha256, size)


SETS: dict[str, PublicSet] = {
    entry.name: entry
    for entry in (
        PublicSet(
            name="digits",
            wing="images",
            title="UCI optical digits (test part), 1,797 greyscale images of 8 x 8, 10 classes",
            origin="https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits",
            licence="CC BY 4.0",
            packaged="scikit-learn",
        ),
        PublicSet(
            name="mnist",
            wing="images",
            title="MNIST handwritten digits, 60,000 + 10,000 greyscale images of 28 x 28, 10 classes",
            origin="http://yann.lecun.com/exdb/mnist/",
            licence="CC BY-SA 3.0",
            files=(
                _mnist(
                    "train-images-idx3-ubyte.gz",
                    9_912_422,
                    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                ),
                _mnist(
                    "train-labels-idx1-ubyte.gz",
                    28_881,
                    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                ),
                _mnist(
                    "t10k-images-idx3-ubyte.gz",
                    1_648_877,
                    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                ),
                _mnist(
                    "t10k-labels-idx1-ubyte.gz",
                    4_542,
                    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                ),
            ),
        ),
    )
}
