"""The image sets that are known by name."""

from r2mae.catalogue import PublicFile, PublicSet

# The official host (yann.lecun.com) no longer serves the files; this mirror is the one torchvision uses, and
# its files are the official ones (train-images has the published md5 f68b3c2dcbeaaa9fbdd348bbdeb94873).
_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"


_MNIST_FILES = (  # name, bytes, SHA-256
    ("train-images-idx3-ubyte.gz", 9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
    ("train-labels-idx1-ubyte.gz", 28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
    ("t10k-images-idx3-ubyte.gz", 1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
    ("t10k-labels-idx1-ubyte.gz", 4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
)

SETS: dict[str, PublicSet] = {
    entry.name: entry
    for entry in (
        PublicSet(
            name="digits",
            domain="images",
            title="UCI optical digits (test part), 1,797 greyscale images of 8 x 8, 10 classes",
            origin="https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits",
            licence="CC BY 4.0",
            packaged="scikit-learn",
        ),
        PublicSet(
            name="mnist",
            domain="images",
            title="MNIST handwritten digits, 60,000 + 10,000 greyscale images of 28 x 28, 10 classes",
            origin="http://yann.lecun.com/exdb/mnist/",
            licence="CC BY-SA 3.0",
            files=tuple(
                PublicFile(f"mnist/{name}", _MNIST + name, sha256, size) for name, size, sha256 in _MNIST_FILES
            ),
        ),
        PublicSet(
            name="celeba",
            domain="images",
            title="CelebA, its first 10,000 faces (training part) in half size, colour, 89 x 109, 40 attributes",
            origin="https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
            licence="non-commercial research only",
            files=(
                PublicFile(
                    "celeba/celeba_10k_89x109.tar.xz",
                    "",
                    "38eff14e7f765a1db125bc91ed8cecce1bd3cbeaf21b95d858d335418ed2d72e",
                    21_704_784,
                ),
                PublicFile(
                    "celeba/list_attr_celeba_10k.csv.xz",
                    "",
                    "b869da2c9579277e95a9d116725f94c839121cc27057715aba12cbb8771860c0",
                    59_732,
                ),
            ),
        ),
        PublicSet(
            name="tiny-imagenet",
            domain="images",
            title="Tiny-ImageNet, 100 of its classes, 20,000 + 5,000 colour images of 64 x 64",
            origin="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
            licence="ImageNet terms: non-commercial research",
            files=(
                PublicFile(
                    "tiny_imagenet/tiny_imagenet100_train200pc_val50pc.tar.xz",
                    "",
                    "7682946193af7597eee78dc251e8ddc916164e3b96620e2058abae8cef6fb563",
                    34_039_452,
                ),
            ),
        ),
    )
}
