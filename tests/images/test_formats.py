import io
import struct
import warnings
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.images.reading import memory_of

from r2mae.errors import UserError
from r2mae.images import arrays
from r2mae.images.arrays import NpyImages, memory_limit, read_npy

pytestmark = pytest.mark.slow

PIXELS = (np.arange(5 * 4 * 3) * 4).astype(np.uint8).reshape(5, 4, 3)
FLOATS = np.linspace(0, 1, 60).reshape(5, 4, 3)
NUMBERS = np.array([0, 1, 2, 1, 0])


def npy(array, *, header=None):
    out = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Stored array in format 3.0")
        np.save(out, array, allow_pickle=True)
    if header is None:
        return out.getvalue()
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + array.tobytes()


def read_parts(path, **options):
    return arrays.read_npz("x", path, **options)


def read_npz(path, **options):
    """Read all images of a file without an official test part."""
    images, *others = read_parts(path, **options)
    assert others == [None, None]
    return images


def npz(**arrays):
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)
    return out.getvalue()


@pytest.fixture
def write(tmp_path):
    def write(content, name="x"):
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


def refused(words, call, *args, limit=None):
    with pytest.raises(UserError, match=words) as caught, memory_of(limit):
        call(*args)
    assert "\n" not in str(caught.value)
    assert str(args[0]) in str(caught.value)


def test_what_cannot_be_opened(tmp_path):
    for read in (read_npy, read_npz):
        refused("No such file", read, tmp_path / "none")
        refused("directory", read, tmp_path)


# --- npy ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["uint8", "bool", "float16", "<f4", ">f4", "float64"])
@pytest.mark.parametrize("shape", [(5, 4, 3), (5, 2, 2, 3), (10, 3, 2, 1)])
def test_npy(write, shape, dtype, order):
    array = np.asarray(FLOATS.reshape(shape) if "f" in dtype else PIXELS.reshape(shape), order=order).astype(dtype)
    images = read_npy(write(npy(array)))
    expected = array.reshape(shape if len(shape) == 4 else (*shape, 1))
    assert images.flags.c_contiguous
    if dtype == "bool":
        expected = np.where(expected, 255, 0)
    assert images.dtype == (np.float32 if "f" in dtype else np.uint8)
    np.testing.assert_array_equal(images, expected.astype(images.dtype))


def test_a_large_npy_is_read_on_access(write):
    for array in (PIXELS, FLOATS.astype(np.float32)):
        path = write(npy(array))
        with memory_of(10):
            mapped = read_npy(path)
        assert isinstance(mapped, NpyImages)
        np.testing.assert_array_equal(mapped.take(np.arange(len(array))), array[..., None])
        path.write_bytes(path.read_bytes()[:-1])
        refused(
            "x: .* it has changed since the run began", lambda path, images: images.take(np.array([4])), path, mapped
        )
    refused("GB of memory", read_npy, write(npy(FLOATS)), limit=10)
    refused("GB of memory", read_npy, write(npy(np.asfortranarray(PIXELS))), limit=10)
    bad = np.full((3, 2, 2), 2, np.float32)
    refused("image 0 has pixels", read_npy, write(npy(bad)), limit=10)


def with_pixel(value, image, dtype):
    array = FLOATS.astype(dtype)
    array[image, 1, 2] = value
    return npy(array)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not a valid .npy"),
        (npy(PIXELS)[:-1], "not a valid .npy file .*mmap length"),
        (npy(PIXELS)[:20], "not a valid .npy"),
        (npy(PIXELS) + b"x", "bytes follow"),
        (npy(PIXELS) + npy(PIXELS), "bytes follow"),
        (npy(PIXELS[0, 0]), r"shape \(3,\), expected N x H x W"),
        (npy(PIXELS[0]), "reshape"),
        (npy(PIXELS.reshape(2, 3, 5, 2)), r"transpose\(0, 2, 3, 1\)"),
        (npy(PIXELS.reshape(5, 2, 3, 2)), "reshape"),
        (npy(PIXELS[:0]), "holds no images .*: save it again with some"),
        (npy(PIXELS[:, :0]), "holds no images"),
        (npy(np.array([{}] * 60, object).reshape(5, 4, 3)), "not a valid .npy file .*Python objects"),
        (npy(PIXELS.astype(np.int64)), "int64, expected uint8"),
        (npy(PIXELS.astype(np.complex64)), "complex64"),
        (npy(PIXELS.astype([("a", "u1")])), "expected uint8"),
        (npy(PIXELS.astype([("日", "u1")])), "expected uint8"),
        (with_pixel(np.nan, 3, "f8"), "image 3 has pixels from nan to nan"),
        (with_pixel(np.inf, 0, "f4"), "image 0 has pixels from .* to inf"),
        (with_pixel(1e300, 4, "f8"), "image 4 has pixels from .* to inf"),
        (with_pixel(-0.5, 2, "f8"), "image 2 has pixels from -0.5 to .* scale"),
        (with_pixel(1.01, 1, "f2"), "image 1 has pixels .* scale"),
        (npy(FLOATS * 255), "image 0 has pixels"),
        (
            npy(PIXELS, header="{'descr': '|u1', 'fortran_order': False, 'shape': (9000000000, 900, 900)}"),
            "not a valid",
        ),
        (npy(PIXELS, header="{'descr': '|u1', 'fortran_order': False, 'shape': (-5, -4, 3)}"), "not a valid"),
        (
            npy(PIXELS, header="{'descr': '|O', 'fortran_order': False, 'shape': (5, 4, 3)}"),
            "not a valid .npy file .*Python objects",
        ),
        (npy(PIXELS, header="__import__('os').system('false')"), "not a valid .npy"),
    ],
)
def test_a_broken_npy_is_named(write, content, words):
    refused(words, read_npy, write(content))


def test_nothing_is_unpickled(write):
    class Trap:
        def __reduce__(self):
            return pytest.fail, ("unpickled",)

    trap = np.array([Trap()] * 60, object).reshape(5, 4, 3)
    refused("Python objects", read_npy, write(npy(trap)))
    refused("allow_pickle=False", read_npz, write(npz(images=trap)))
    refused("allow_pickle=False", read_npz, write(npz(images=PIXELS, labels=trap[:, 0, 0])))


def test_bool_bytes_other_than_0_and_1_are_true(write):
    content = npy(np.ones((1, 1, 3), bool))[:-3] + bytes([0, 1, 77])
    np.testing.assert_array_equal(read_npy(write(content)).ravel(), [0, 255, 255])


# --- npz ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "classes", "numbers"),
    [
        ([2, 0, 2, 7, 0], ("0", "2", "7"), [1, 0, 1, 2, 0]),
        (["cat", "ant", "cat", "é", "ant"], ("ant", "cat", "é"), [1, 0, 1, 2, 0]),
        ([10, 9, 9, 9, 100], ("9", "10", "100"), [1, 0, 0, 0, 2]),
    ],
)
def test_npz(write, labels, classes, numbers):
    read = read_npz(write(npz(images=PIXELS, labels=labels)))
    np.testing.assert_array_equal(read.images, PIXELS[..., None])
    assert read.classes == classes
    assert read.labels.dtype == np.int64
    np.testing.assert_array_equal(read.labels, numbers)


def test_npz_without_labels_and_with_floats(write):
    read = read_npz(write(npz(images=FLOATS)))
    assert (read.labels, read.classes) == (None, None)
    assert read.images.dtype == np.float32
    out = io.BytesIO()
    np.savez(out, images=np.asfortranarray(PIXELS > 100), other=FLOATS)
    np.testing.assert_array_equal(read_npz(write(out.getvalue())).images[..., 0], np.where(PIXELS > 100, 255, 0))


def zipped(**members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return out.getvalue()


def flipped(content, needle):
    """Flip a bit within a stored member, so that only its checksum tells."""
    at = content.index(needle)
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def stored(**arrays):
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not a valid .npz"),
        (npy(PIXELS), "not a valid .npz"),
        (npz(images=PIXELS)[:-30], "not a valid .npz"),
        (flipped(stored(images=PIXELS), PIXELS.tobytes()), "not a valid .npz.*CRC"),
        (npz(pixels=PIXELS, classes=PIXELS), r"no array `images` \(found: pixels, classes\)"),
        (zipped(), r"found: nothing"),
        (npz(images=PIXELS[0]), "reshape"),
        (npz(images=PIXELS[:0]), r"`images`: holds no images"),
        (npz(images=PIXELS, labels=NUMBERS[:0]), r"`images`: labels of shape .0,., expected .5,."),
        (npz(images=FLOATS * 2), "image 2 has pixels"),
        (npz(images=PIXELS, labels=[1, 2]), r"`images`: labels of shape \(2,\), expected \(5,\)"),
        (npz(images=PIXELS, labels=np.zeros((5, 2), int)), r"shape \(5, 2\)"),
        (npz(images=PIXELS, labels=[0.5] * 5), "labels have type float64"),
        (npz(images=PIXELS, labels=[0, 1, -1, 0, 0]), "image 2 has the negative label -1"),
        (npz(images=PIXELS, labels=[b"a"] * 5), r"labels have type \|S1, expected integers or text"),
        (zipped(images=npy(PIXELS) + b"x"), "bytes follow"),
        (zipped(images=npy(PIXELS)[:-1]), "not a valid .npz"),
        (zipped(images=b"pixels"), "not a valid .npz"),
    ],
)
def test_a_broken_npz_is_named(write, content, words):
    refused(words, read_npz, write(content))


def test_a_zip_bomb_is_refused_by_what_it_unpacks_to(write):
    bomb = npz(images=np.zeros((100, 512, 512), np.uint8))
    assert len(bomb) < 2**16
    refused("GB of memory.*read image by image", read_npz, write(bomb), limit=2**24)


def test_the_memory_limit_is_plausible():
    assert 2**27 < memory_limit() < 2**50


# --- whatever the bytes, a valid result or one line ----------------------------------------------------------

VALID = {
    read_npy: [npy(PIXELS), npy(FLOATS), npy(FLOATS.astype("f2")), npy(PIXELS > 9)],
    read_npz: [npz(images=PIXELS, labels=NUMBERS), stored(images=FLOATS, labels=NUMBERS.astype(str))],
}
fuzz = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def damaged(draw, originals):
    content = bytearray(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(0, 3))):
        content[draw(st.integers(0, len(content) - 1))] ^= 1 << draw(st.integers(0, 7))
    if draw(st.booleans()):
        start = draw(st.integers(0, len(content)))
        content[start : start + draw(st.integers(0, 40))] = draw(st.binary(max_size=40))
    return bytes(content[: draw(st.integers(0, len(content)))] if draw(st.booleans()) else content)


def is_sound(read, path):
    try:
        with memory_of(2**24):
            result = read(path)
    except UserError as error:
        assert "\n" not in str(error)
        return
    images, labels, classes = (
        (result.images, result.labels, result.classes) if read is read_npz else (result, None, None)
    )
    assert images.ndim == 4
    assert images.size > 0
    assert images.shape[3] in {1, 3}
    assert images.dtype == np.uint8 or (images.dtype == np.float32 and 0 <= images.min() <= images.max() <= 1)
    if labels is not None:
        assert labels.shape == images.shape[:1]
        assert sorted(set(labels.tolist())) == list(range(len(classes)))


@pytest.mark.parametrize("read", VALID)
def test_random_bytes(read, write):
    heads = [b"", b"\x93NUMPY\x01\x00", b"PK\x03\x04"]

    @fuzz
    @given(st.sampled_from(heads), st.binary(max_size=400))
    def run(head, tail):
        is_sound(read, write(head + tail))

    run()


@pytest.mark.parametrize("read", VALID)
def test_damaged_files(read, write):
    @fuzz
    @given(damaged(VALID[read]))
    def run(content):
        is_sound(read, write(content))

    run()


def test_damaged_headers_under_a_right_checksum(write):
    """Damage within the packed stream, which the checksums of zip would otherwise catch first."""

    @fuzz
    @given(damaged([npy(PIXELS), npy(FLOATS)]), damaged([npy(NUMBERS), npy(NUMBERS.astype(str))]))
    def run(images, labels):
        is_sound(read_npz, write(zipped(images=images, labels=labels)))

    run()


def test_every_valid_file_of_the_fuzz_is_valid(write):
    for read, contents in VALID.items():
        for content in contents:
            assert read(write(content)) is not None


def test_labels_that_are_no_characters(write):
    text = npy(np.array(["a", "b", "a", "b", "a"])).replace(b"a\x00\x00\x00", b"\x00\x00\x11\x00", 1)
    with pytest.raises(UserError, match=r"x: not a valid \.npz file"):
        read_npz(write(zipped(images=npy(PIXELS), labels=text)))
