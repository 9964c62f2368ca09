"""Every kind of image file comes out as it was meant; every kind of bad one says what is wrong."""

import contextlib
import io
import os
import struct
import sys
import types

import numpy as np
import picture_files
import pytest
import tifffile
import torch
from PIL import Image, ImageOps

from vitreous.data.decode.images import displayed_size, from_any, read_image, unread_pages
from vitreous.data.decode.pixels import as_channels
from vitreous.errors import DataError

RANDOM = np.random.default_rng(0)
RGB = RANDOM.integers(0, 256, (6, 9, 3), dtype=np.uint8)
GRAY = RGB[..., 0]
DEEP = RANDOM.integers(0, 65536, (6, 9), dtype=np.uint16)


def pixels(path, **options):
    """(h, w, c) or (h, w)."""
    array = read_image(path, **options).permute(1, 2, 0).numpy()
    return array[..., 0] if array.shape[2] == 1 else array


def saved(tmp_path, image, name="a.png", **options):
    path = tmp_path / name
    image.save(path, **options)
    return path


def written(tmp_path, data, name="a.tif"):
    path = tmp_path / name
    path.write_bytes(data)
    return path


LOSSLESS = {"a.webp": {"lossless": True}}
REAL = RANDOM.normal(size=(6, 9)).astype(np.float32)
WIDE = np.array([[-3, 70000]], np.int32)


@pytest.mark.parametrize(
    ("name", "array", "dtype"),
    [
        *((name, each, "uint8") for name in ("a.png", "a.bmp", "a.tif") for each in (GRAY, RGB)),
        *(("a.ppm", GRAY, "uint8"), ("a.ppm", RGB, "uint8"), ("a.webp", RGB, "uint8")),
        *(("a.png", DEEP, "uint16"), ("a.tif", DEEP, "uint16"), ("a.pgm", DEEP, "uint16")),
        *(("a.tif", REAL, "float32"), ("a.tif", WIDE, "float32")),  # whole numbers of 32 bits
    ],
)
def test_formats_that_lose_nothing(tmp_path, name, array, dtype):
    path = saved(tmp_path, Image.fromarray(array), name, **LOSSLESS.get(name, {}))
    if name == "a.pgm":
        path.write_bytes(b"P5\n9 6\n65535\n" + array.astype(">u2").tobytes())
    got = pixels(path)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, array)


@pytest.mark.parametrize("name", ["a.jpg", "a.gif", "a.png", "a.webp"])
@pytest.mark.parametrize("mode", ["L", "RGB", "1", "P"])
def test_others_are_as_pillow_reads_them(tmp_path, name, mode):
    """One bit, palettes; lossy JPEG; GIF and WebP, which have no gray of their own."""
    image = Image.fromarray(RGB).quantize(16) if mode == "P" else Image.fromarray(RGB).convert(mode)
    if mode == "P" and name == "a.jpg":
        image = image.convert("RGB")
    path = saved(tmp_path, image, name)
    with Image.open(path) as stored:
        expected = np.asarray(stored.convert("RGB"))
    got = read_image(path)
    assert got.shape[0] == 1 or mode in ("RGB", "P") or name in ("a.gif", "a.webp")
    np.testing.assert_array_equal(got.expand(3, -1, -1).permute(1, 2, 0), expected)


def on_white(colour, alpha):
    return np.round((colour * (alpha / 255) + 255 - alpha).astype(float)).astype(int)


@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.webp"])
def test_alpha_is_put_on_white(tmp_path, name):
    alpha = RANDOM.integers(0, 256, (6, 9, 1), dtype=np.uint8)
    alpha[0], alpha[1] = 0, 255
    image = Image.fromarray(np.concatenate([RGB, alpha], axis=2))
    path = saved(tmp_path, image, name, **LOSSLESS.get(name, {}))
    got = pixels(path).astype(int)
    assert (got[0] == 255).all()
    np.testing.assert_array_equal(got[1], RGB[1])
    assert abs(got - on_white(RGB, alpha)).max() <= 1


def test_gray_with_alpha_stays_gray(tmp_path):
    alpha = RANDOM.integers(0, 256, (6, 9), dtype=np.uint8)
    path = saved(tmp_path, Image.fromarray(np.stack([GRAY, alpha], axis=2)))
    assert abs(pixels(path).astype(int) - on_white(GRAY, alpha)).max() <= 1


@pytest.mark.parametrize("alphas", [0, bytes([0, 128, 255])], ids=["one colour", "table"])
def test_palette_with_transparency(tmp_path, alphas):
    image = Image.fromarray(GRAY % 3).convert("P")
    image.putpalette([200, 0, 0, 0, 200, 0, 0, 0, 200])
    path = saved(tmp_path, image, transparency=alphas)
    got = pixels(path)
    assert (got[GRAY % 3 == 0] == 255).all()
    assert (got[GRAY % 3 == 2] == (0, 0, 200)).all()
    middle = (127, 227, 127) if alphas else (0, 200, 0)
    assert abs(got[GRAY % 3 == 1].astype(int) - middle).max() <= 1


@pytest.mark.parametrize(("mode", "colour"), [("L", 7), ("RGB", (7, 8, 9))])
def test_one_colour_that_means_transparent(tmp_path, mode, colour):
    image = Image.new(mode, (4, 4), colour)
    image.putpixel((1, 2), 50 if mode == "L" else (50, 50, 50))
    got = pixels(saved(tmp_path, image, transparency=colour))
    assert (got[2, 1] == 50).all()
    assert (got[0] == 255).all()


@pytest.mark.parametrize("name", ["a.jpg", "a.tif"])
def test_cmyk(tmp_path, name):
    image = Image.new("CMYK", (8, 8), (0, 255, 255, 0))  # red
    path = saved(tmp_path, image, name, **({"quality": 100} if name == "a.jpg" else {}))
    got = pixels(path)
    assert got.shape == (8, 8, 3)
    assert abs(got.astype(int) - (255, 0, 0)).max() <= 3


def test_ycbcr(tmp_path):
    image = Image.new("RGB", (8, 8), (200, 30, 60)).convert("YCbCr")
    got = pixels(saved(tmp_path, image, "a.tif"))
    assert abs(got.astype(int) - (200, 30, 60)).max() <= 3


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_png_of_16_bits_in_colour(tmp_path, channels):
    array = RANDOM.integers(0, 65536, (6, 9, channels), dtype=np.uint16)
    if channels in (2, 4):
        array[..., -1] = 65535
    got = pixels(written(tmp_path, picture_files.png(array), "a.png"))
    assert got.dtype == np.uint16
    expected = array[..., :-1] if channels in (2, 4) else array
    np.testing.assert_array_equal(got, expected.squeeze())


def test_png_of_16_bits_with_alpha(tmp_path):
    array = np.full((4, 5, 4), 40000, np.uint16)
    array[:2, ..., 3], array[2:, ..., 3] = 0, 32768
    got = pixels(written(tmp_path, picture_files.png(array), "a.png"))
    assert (got[:2] == 65535).all()
    assert abs(got[2:].astype(int) - 52767).max() <= 1


def test_what_is_read_can_be_written_to(tmp_path):
    for image in (Image.fromarray(GRAY), Image.fromarray(RGB), Image.fromarray(DEEP)):
        read_image(saved(tmp_path, image))[0, 0, 0] = 1
        from_any(image)[0][0, 0, 0] = 1


def test_values_that_are_not_finite(tmp_path):
    array = REAL.copy()
    array[2, 2] = np.nan
    with pytest.raises(DataError, match=r"a\.tif: has values that are not finite"):
        read_image(saved(tmp_path, Image.fromarray(array), "a.tif"))


@pytest.mark.parametrize("planar", [False, True], ids=["side by side", "planes"])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32", "int16"])
@pytest.mark.parametrize(
    ("channels", "colour"),
    [(c, False) for c in (1, 2, 3, 4, 5, 8, 13)] + [(c, True) for c in (3, 4, 5, 8)],
)
def test_tiff_with_any_channels(tmp_path, channels, dtype, colour, planar):
    array = (RANDOM.random((6, 9, channels)) * 200).astype(dtype)
    data = picture_files.tiff(array, planar=planar, colour=colour)
    image = read_image(written(tmp_path, data))
    assert image.dtype == (torch.float32 if dtype == "int16" else getattr(torch, dtype))
    np.testing.assert_array_equal(image.permute(1, 2, 0).numpy(), array)


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_tiff_with_alpha(tmp_path, dtype):
    array = np.full((4, 5, 4), np.iinfo(dtype).max // 2, dtype)
    array[:2, ..., 3], array[2:, ..., 3] = 0, np.iinfo(dtype).max
    got = pixels(written(tmp_path, picture_files.tiff(array, colour=True, extra=2)))
    assert got.shape == (4, 5, 3)
    assert (got[:2] == np.iinfo(dtype).max).all()
    assert (got[2:] == np.iinfo(dtype).max // 2).all()


IMAGEJ = {"imagej": True}


@pytest.mark.parametrize(
    ("shape", "dtype", "options"),
    [
        ((5, 6, 9), "uint8", {}),
        ((5, 6, 9), "uint16", {"bigtiff": True}),
        ((2, 6, 9), "float32", {"compression": "zlib"}),
        ((13, 6, 9), "int16", {"byteorder": ">"}),
        ((5, 6, 9), "uint8", {"metadata": {"axes": "CYX"}}),
        ((4, 6, 9), "uint16", IMAGEJ),
        ((40, 6, 6), "uint16", {}),
    ],
)
def test_pages_that_are_the_channels_of_one_image(tmp_path, shape, dtype, options):
    array = (RANDOM.random(shape) * 200).astype(dtype)
    tifffile.imwrite(tmp_path / "a.tif", array, **options)
    image = read_image(tmp_path / "a.tif")
    assert image.dtype == (torch.float32 if dtype == "int16" else getattr(torch, dtype))
    np.testing.assert_array_equal(image.numpy(), array)
    assert unread_pages(str(tmp_path / "a.tif")) == 0


def test_an_array_with_channels_last_is_not_an_image_for_each_row(tmp_path):
    array = RANDOM.integers(0, 255, (16, 12, 5), dtype=np.uint8)
    tifffile.imwrite(tmp_path / "a.tif", array)
    np.testing.assert_array_equal(pixels(tmp_path / "a.tif"), array)


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((5, 6, 9), {"metadata": None}),
        ((5, 6, 9), {"metadata": {"axes": "ZYX"}}),
        ((5, 6, 9), {**IMAGEJ, "metadata": {"axes": "TYX"}}),
        ((2, 5, 6, 9), {}),
        ((2, 5, 6, 9), IMAGEJ),
        ((5, 6, 9), {"metadata": None, "description": '{"shape": [4, 6, 9]}'}),
        ((5, 6, 9), {"metadata": None, "description": '{"shape": "5x6x9"}'}),
        ((5, 6, 9, 3), {"photometric": "rgb"}),
    ],
)
def test_pages_that_are_something_else(tmp_path, shape, options):
    array = RANDOM.integers(0, 255, shape, dtype=np.uint8)
    tifffile.imwrite(tmp_path / "a.tif", array, **options)
    colour = 3 if shape[-1] == 3 else 1
    pages = array.reshape(-1, 6, 9, colour)
    np.testing.assert_array_equal(read_image(tmp_path / "a.tif").permute(1, 2, 0), pages[0])
    assert unread_pages(str(tmp_path / "a.tif")) == len(pages)


def test_pages_of_different_sizes_are_not_one_image(tmp_path):
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        file.write(GRAY, metadata=None, description='{"shape": [2, 6, 9]}')
        file.write(np.zeros((4000, 4000), np.uint8), metadata=None)
    np.testing.assert_array_equal(pixels(tmp_path / "a.tif", max_pixels=100), GRAY)
    assert unread_pages(str(tmp_path / "a.tif")) == 2


def test_the_limit_is_on_all_pages(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((8, 6, 9), np.uint8))
    assert read_image(tmp_path / "a.tif", max_pixels=108).shape == (8, 6, 9)
    with pytest.raises(DataError, match=r"a\.tif: too many pixels: 9x6 with 8 channels"):
        read_image(tmp_path / "a.tif", max_pixels=107)


def test_tiff_limits_and_rotation(tmp_path):
    array = RANDOM.integers(0, 255, (6, 9, 8), dtype=np.uint8)
    path = written(tmp_path, picture_files.tiff(array, orientation=6))
    np.testing.assert_array_equal(pixels(path), np.rot90(array, -1))
    with pytest.raises(DataError, match=r"a\.tif: too many pixels: 9x6 with 8 channels"):
        read_image(path, max_pixels=100)
    with pytest.raises(DataError, match=r"a\.tif: is "):
        read_image(written(tmp_path, path.read_bytes()[:400]))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.tif", "a.webp"])
def test_exif_rotation(tmp_path, orientation, name):
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = saved(tmp_path, Image.fromarray(RGB), name, exif=exif)
    with Image.open(path) as image:
        expected = np.asarray(ImageOps.exif_transpose(image))
    np.testing.assert_array_equal(pixels(path), expected)


def test_damaged_exif_does_not_matter(tmp_path):
    path = saved(tmp_path, Image.fromarray(RGB), "a.png", exif=b"Exif\0\0II*\0\xff\xff\xff")
    np.testing.assert_array_equal(pixels(path), RGB)


@pytest.mark.parametrize("name", ["a.gif", "a.webp", "a.tif"])
def test_the_first_of_several(tmp_path, name):
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "lime", "blue")]
    path = saved(tmp_path, frames[0], name, save_all=True, append_images=frames[1:])
    assert abs(pixels(path).astype(int) - (255, 0, 0)).max() <= 3


def test_a_strip(tmp_path):
    for shape in ((1, 65500), (65500, 1)):
        path = saved(tmp_path, Image.fromarray(np.zeros(shape, np.uint8)), "a.jpg")
        assert read_image(path).shape == (1, *shape)


@pytest.mark.parametrize("name", ["größe 图.png", "a\nb.png", "[red]%s{}.png"])
def test_unusual_names(tmp_path, name):
    path = saved(tmp_path, Image.fromarray(RGB), name)
    np.testing.assert_array_equal(pixels(str(path)), RGB)


def test_a_name_that_is_not_utf8(tmp_path):
    path = os.path.join(tmp_path, os.fsdecode(b"caf\xe9.png"))
    Image.fromarray(RGB).save(path)
    np.testing.assert_array_equal(pixels(path), RGB)
    with open(path, "wb"):
        pass
    with pytest.raises(DataError, match=r"caf\\xe9\.png: the file is empty") as error:
        read_image(path)
    str(error.value).encode()  # can be printed


def bad_files(tmp_path):
    """name -> what must be said of it."""
    good = saved(tmp_path, Image.fromarray(RANDOM.integers(0, 256, (64, 64, 3), dtype=np.uint8)))
    made = {}
    for format in ("jpg", "png", "webp", "bmp", "tif", "gif", "ppm"):
        with Image.open(good) as image:
            image.save(tmp_path / f"whole.{format}")
        data = (tmp_path / f"whole.{format}").read_bytes()
        for share in (0.5, 0.9):
            made[f"cut{share}.{format}"] = data[: int(len(data) * share)], "cut short|damaged"
        made[f"head.{format}"] = data[:10], "cut short|damaged|not an image"
    whole = (tmp_path / "whole.png").read_bytes()
    made["flipped.png"] = whole[:60] + b"\xff" * 200 + whole[260:], "damaged|cut short"
    made["empty.jpg"] = b"", "the file is empty"
    made["page.jpg"] = b"\n<!DOCTYPE HTML><html><body>404</body>", "is an HTML page"
    made["text.png"] = b"hello", "is not an image that can be read"
    made["zeros.png"] = bytes(1000), "is not an image that can be read"
    made["pointer.png"] = b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"
    made["phone.jpg"] = b"\0\0\0\x18ftypheic" + bytes(50), "HEIC"
    made["drawing.png"] = b"<svg xmlns='http://www.w3.org/2000/svg'/>", "SVG"
    made["paper.jpg"] = b"%PDF-1.7", "PDF"
    made["bomb.png"] = (
        picture_files.bomb(20_000, 20_000),
        "too many pixels: 400,000,000.*50,000,000",
    )
    made["large.png"] = picture_files.bomb(10_000, 8_000), "too many pixels: 10000x8000"
    made["larger.png"] = picture_files.bomb(10_000, 10_000), "too many pixels: 100,000,000"
    return made


def test_bad_files_say_what_is_wrong(tmp_path):
    for name, (data, what) in bad_files(tmp_path).items():
        path = written(tmp_path, data, name)
        with pytest.raises(DataError, match=what) as error:
            read_image(path)
        assert str(error.value).startswith(f"{path}: "), name
        assert "\n" not in str(error.value), name


def test_nothing_but_data_errors_from_damaged_bytes(tmp_path):
    random = np.random.default_rng(1)
    made = [
        path.read_bytes()
        for format in ("jpg", "png", "webp", "bmp", "tif", "gif", "ppm")
        if Image.fromarray(RGB).save(path := tmp_path / f"a.{format}") is None
    ]
    made.append(picture_files.tiff(np.zeros((6, 9, 5), np.uint8)))
    made.append(picture_files.png(DEEP))
    tifffile.imwrite(path := tmp_path / "pages.tif", np.zeros((5, 6, 9), np.uint8))
    made.append(path.read_bytes())
    for data in made:
        for _ in range(60):
            bytes_ = np.frombuffer(data, np.uint8).copy()
            where = random.integers(0, len(bytes_), random.integers(1, 8))
            bytes_[where] = random.integers(0, 256, len(where))
            with contextlib.suppress(DataError):
                image = read_image(written(tmp_path, bytes_.tobytes(), "x"), max_pixels=1_000_000)
                assert image.ndim == 3
                assert unread_pages(str(tmp_path / "x")) >= 0


def test_paths_that_are_no_files(tmp_path):
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "loop.png").symlink_to(tmp_path / "loop.png")
    (tmp_path / "broken.png").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe.png")
    for name, what in {
        "folder.png": "is a folder, not an image",
        "loop.png": "cannot be read: .*symbolic links",
        "broken.png": "is a link to a file that does not exist",
        "pipe.png": "is not a regular file",
        "nothing.png": "there is no such file",
        "zero\0.png": "null",
    }.items():
        with pytest.raises(DataError, match=what) as error:
            read_image(os.path.join(tmp_path, name))
        assert str(error.value).startswith(os.path.join(tmp_path, name))


def test_no_permission(tmp_path, monkeypatch):
    path = saved(tmp_path, Image.fromarray(RGB))
    monkeypatch.setattr(
        "builtins.open", lambda *a: (_ for _ in ()).throw(PermissionError(13, "no"))
    )
    with pytest.raises(DataError, match=r"a\.png: cannot be read: no"):
        read_image(path)


def test_the_limit_can_be_set(tmp_path):
    path = saved(tmp_path, Image.fromarray(RGB))
    assert read_image(path, max_pixels=54).shape == (3, 6, 9)
    with pytest.raises(DataError, match=r"a\.png: too many pixels: 9x6, at most 53"):
        read_image(path, max_pixels=53)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.float32])
def test_channels(dtype):
    image = torch.from_numpy(RGB).permute(2, 0, 1).to(torch.float32).to(dtype)
    assert as_channels(image, 3) is image
    gray = as_channels(image, 1)
    assert gray.dtype == dtype
    expected = np.asarray(Image.fromarray(RGB).convert("L")).astype(int)
    assert abs(gray[0].to(torch.float32).numpy() - expected).max() <= 1
    back = as_channels(gray, 3)
    assert back.shape == image.shape
    assert (back == gray).all()
    with pytest.raises(DataError, match="has 3 channels, expected 4"):
        as_channels(image, 4)


def test_from_any(tmp_path):
    path = saved(tmp_path, Image.fromarray(RGB))
    expected = torch.from_numpy(RGB).permute(2, 0, 1)
    chw = np.ascontiguousarray(RGB.transpose(2, 0, 1))
    with Image.open(path) as opened:
        for thing, name in (
            (str(path), str(path)),
            (path, str(path)),
            (opened, str(path)),
            (Image.fromarray(RGB), "image"),
            (RGB, "array"),
            (chw, "array"),
            (expected, "tensor"),
        ):
            image, given = from_any(thing)
            assert (given, image.dtype) == (name, torch.uint8)
            assert torch.equal(image, expected)
    assert from_any(GRAY)[0].shape == (1, 6, 9)
    assert from_any(GRAY > 100)[0].max() == 255
    assert from_any(RGB / 255)[0].dtype == torch.float32
    assert from_any(DEEP.astype(">u2"))[0].dtype == torch.uint16
    assert from_any(np.zeros((3, 4, 3), np.uint8))[0].shape == (3, 3, 4)  # (h, w, c)
    for thing, what in (
        (RGB.astype(int), "int64 does not say which value is white"),
        (np.zeros((2, 3, 4, 5), np.uint8), "got 2x3x4x5"),
        (np.zeros((0, 4, 3), np.uint8), "with pixels in it"),
        (np.full((4, 4), np.nan), "not finite"),
        (np.array([["a"]]), "no colours"),
        (None, "NoneType: expected a path"),
    ):
        with pytest.raises(DataError, match=what):
            from_any(thing)


# ---- AVIF and HEIC


def test_avif_is_read(tmp_path):
    """Pillow reads it."""
    pixels = np.zeros((20, 30, 3), np.uint8)
    pixels[:, 15:] = (200, 100, 50)
    Image.fromarray(pixels).save(tmp_path / "a.avif", quality=100)
    image = read_image(tmp_path / "a.avif")
    assert image.shape == (3, 20, 30)
    assert np.abs(image.permute(1, 2, 0).numpy().astype(int) - pixels).mean() < 3
    assert displayed_size(tmp_path / "a.avif") == (20, 30, 1)
    with pytest.raises(DataError, match="too many pixels: 30x20"):
        read_image(tmp_path / "a.avif", max_pixels=599)
    (tmp_path / "cut.avif").write_bytes((tmp_path / "a.avif").read_bytes()[:60])
    with pytest.raises(DataError, match=r"cut\.avif: is (damaged|cut short)"):
        read_image(tmp_path / "cut.avif")


def test_heic_needs_pillow_heif(tmp_path, monkeypatch):
    """With pillow-heif it is read, without the message names it."""
    made = io.BytesIO()
    Image.new("RGB", (6, 4), "red").save(made, "PNG")
    file = tmp_path / "phone.heic"
    file.write_bytes(b"\0\0\0\x18ftypheic" + made.getvalue())
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(DataError, match=r"phone\.heic: is a HEIC image: install pillow-heif"):
        read_image(file)

    def opener(fp, filename):
        fp.seek(12)
        return Image.open(io.BytesIO(fp.read()), formats=("PNG",))

    plugin = types.ModuleType("pillow_heif")
    plugin.register_heif_opener = lambda: Image.register_open("HEIF", opener)
    monkeypatch.setitem(sys.modules, "pillow_heif", plugin)
    monkeypatch.setattr(Image, "OPEN", dict(Image.OPEN))
    monkeypatch.setattr(Image, "ID", list(Image.ID))
    assert read_image(file)[:, 0, 0].tolist() == [255, 0, 0]


def test_a_video_is_not_an_image(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"\0\0\0\x18ftypmp42" + bytes(50))
    with pytest.raises(DataError, match="is a video file"):
        read_image(tmp_path / "a.jpg")


def test_tiff_without_pixels(tmp_path):
    """A width of 0 became an image without channels, which nothing behind it expects."""
    for name, shape in (("a.tif", (8, 9, 5)), ("b.tif", (5, 8, 9)), ("c.tif", (8, 9))):
        tifffile.imwrite(tmp_path / name, np.zeros(shape, np.uint8), photometric="minisblack")
        data = (tmp_path / name).read_bytes()
        for tag in (256, 257):  # width and height
            at = max(data.find(struct.pack("<HHI", tag, kind, 1)) for kind in (3, 4))
            (tmp_path / name).write_bytes(data[: at + 8] + bytes(4) + data[at + 12 :])
            for read in (read_image, displayed_size):
                with pytest.raises(DataError, match=name):
                    read(tmp_path / name)


def test_the_address_of_a_picture_is_told_to_be_downloaded():
    with pytest.raises(DataError, match=r"https://host/a\.png: is an address.*download it first"):
        read_image("https://host/a.png")
