"""Files as they are found in folders of images: odd ones that can be trained on, and ones that
cannot.
"""

import os
import shutil

import numpy as np
from image_folders import noisy
from PIL import Image, ImageDraw

CLASS_NAMES = ("NA", "None", "<b>![x](y)|", 'a, "b"; c', "Ärger 日本 مرحبا", " = 1 + 1")


def pixels(seed):
    return noisy("bee", seed, side=20)


def odd_images(folder):
    """Images of every kind that is read; the number of them."""
    rgb = Image.fromarray(pixels(100))
    grey = pixels(101)[..., 0]
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    saved = {
        "16 bit.png": (Image.fromarray(grey.astype(np.uint16) * 257), {}),
        "16 bit.tif": (Image.fromarray(pixels(102)[..., 0].astype(np.uint16) * 257), {}),
        "float.tif": (Image.fromarray(pixels(103)[..., 0].astype(np.float32) / 255), {}),
        "palette.png": (Image.fromarray(pixels(104)).quantize(16), {"transparency": 0}),
        "cmyk.jpg": (Image.fromarray(pixels(105)).convert("CMYK"), {}),
        "transparent.png": (Image.fromarray(pixels(106)).convert("RGBA"), {}),
        "two values.png": (Image.fromarray(pixels(107)).convert("1"), {}),
        "grey alpha.png": (Image.fromarray(pixels(108)).convert("LA"), {}),
        "turned.jpg": (Image.fromarray(pixels(109)), {"exif": exif}),
        "lossy.webp": (Image.fromarray(pixels(110)), {}),
        "LOUD.JPG": (Image.fromarray(pixels(111)), {}),
        "long.png": (Image.fromarray(np.tile(pixels(112), (1, 20, 1))), {}),
        "dot.bmp": (Image.fromarray(pixels(113)[:1, :1]), {}),
        "ünï 日本 (1).png": (rgb, {}),
        "deeper/still deeper/x.png": (Image.fromarray(pixels(114)), {}),
    }
    for name, (image, options) in saved.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        image.save(folder / name, **options)
    return len(saved)


def bad_files(folder):
    """Files that cannot be trained on; their names as messages write them."""
    whole = folder / "cut short.jpg"
    drawn = Image.new("RGB", (64, 64))
    ImageDraw.Draw(drawn).line((0, 0, 64, 64), fill="red", width=9)
    drawn.save(whole)
    whole.write_bytes(whole.read_bytes()[: -len(whole.read_bytes()) // 3])
    (folder / "nothing.png").write_bytes(b"")
    (folder / "text.png").write_text("no image")
    (folder / "notes.txt").write_text("x")
    Image.fromarray(np.array([[0, 300]], dtype=np.int32)).save(folder / "32 bit.tif")
    Image.fromarray(np.array([[0, 300]], dtype=np.float32)).save(folder / "beyond 1.tif")
    os.mkfifo(folder / "pipe.png")
    (folder / "nowhere.png").symlink_to(folder / "gone.png")
    (folder / "loop.png").symlink_to(folder / "loop.png")
    Image.fromarray(pixels(120)).save(folder / "line\rbreak.png")
    shutil.copy(folder / "line\rbreak.png", os.fsencode(folder) + b"/bytes\xff.png")
    for number in range(2):  # round in circles
        (folder / f"self{number}").symlink_to(folder)
    return {
        "cut short.jpg",
        "nothing.png",
        "text.png",
        "notes.txt",
        "32 bit.tif",
        "beyond 1.tif",
        "pipe.png",
        "nowhere.png",
        "loop.png",
        "line\\rbreak.png",
        "bytes\\udcff.png",
    }


def junk(root, folder):
    """What operating systems leave behind; the number of files and folders skipped."""
    for place in (root / "Thumbs.db", root / ".DS_Store", folder / "desktop.ini"):
        place.write_text("x")
    (folder / "._0.png").write_bytes(b"resource fork")
    (root / "__MACOSX" / "ant").mkdir(parents=True)
    return 5
