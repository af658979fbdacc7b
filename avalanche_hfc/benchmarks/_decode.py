"""The one reader of images in files: training, checks and predictions see the same pixels. No
torch.
"""

from io import BytesIO
from pathlib import Path
from typing import IO

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

SIXTEEN_BIT = ("I;16", "I;16L", "I;16B", "I;16N")
SIXTEEN_BIT_FORMATS = ("PNG", "PPM")  # whose mode I, 32 bits wide, holds 16-bit values


def read_image(
    file: Path | str | IO[bytes] | BytesIO, *, upright: bool = True, mode: str = "RGB"
) -> Image.Image:
    """The image in a file, with 8 bits per channel.

    Values of 16 bits are scaled from 0 to 65535, floating-point values from 0 to 1.

    Args:
        file: A path, or a file opened for reading bytes.
        upright: Obey the orientation noted by the camera (EXIF).
        mode: "RGB", or "L" for grey.

    Returns:
        The decoded image.

    Raises:
        ValueError: The file cannot be decoded, or its values have no known range. The message
            says why; it does not name the file.

    Example:
        >>> file = BytesIO()
        >>> Image.fromarray(np.full((2, 2), 65535, dtype=np.uint16)).save(file, "PNG")
        >>> read_image(file).getpixel((0, 0))
        (255, 255, 255)
    """
    try:
        with Image.open(file) as image:
            turned = ImageOps.exif_transpose(image) if upright else image
            return _eight_bit(turned, image.format).convert(mode)
    except UnidentifiedImageError:
        raise ValueError("not an image in a known format") from None
    except FileNotFoundError:
        raise ValueError("no such file") from None
    except ValueError:
        raise
    except Exception as error:  # decoders raise errors of any kind for a damaged file
        raise ValueError(str(error) or type(error).__name__) from error


def _eight_bit(image: Image.Image, file_format: str | None) -> Image.Image:
    """The image with at most 8 bits per channel; `convert` alone would cut values at 255."""
    if image.mode in SIXTEEN_BIT or (image.mode == "I" and file_format in SIXTEEN_BIT_FORMATS):
        values = np.asarray(image).astype(np.int64)
        return Image.fromarray(((values + 128) // 257).astype(np.uint8))
    if image.mode == "I":
        raise ValueError("32-bit integer pixels have no known range; save it with 8 or 16 bits")
    if image.mode == "F":
        floats = np.asarray(image)
        if not (floats.min() >= 0 and floats.max() <= 1):  # false for NaN, too
            raise ValueError(
                f"floating-point pixels from {floats.min():g} to {floats.max():g}; they must be in "
                "[0, 1]"
            )
        return Image.fromarray(np.round(floats * 255).astype(np.uint8))
    return image
