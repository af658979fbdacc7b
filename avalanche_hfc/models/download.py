"""timm's weights of a backbone: from the cache of Hugging Face, else downloaded in one try."""

import hashlib
import re
from pathlib import Path

from huggingface_hub import (
    get_hf_file_metadata,
    hf_hub_download,
    hf_hub_url,
    try_to_load_from_cache,
)
from timm.models import get_pretrained_cfg

FILE = "model.safetensors"
SHA256 = re.compile("[0-9a-f]{64}")  # the name of a large file in the cache is its checksum


def weights_file(backbone: str) -> Path:
    """The file with timm's weights of a backbone. A file in the cache needs no network.

    Args:
        backbone: Name of a timm model with weights, such as ``vit_base_patch16_224.mae``.

    Returns:
        The file in the cache of Hugging Face.

    Raises:
        ValueError: If timm has no weights of this name on Hugging Face.
        ConnectionError: If the file is not in the cache and cannot be downloaded, or if its
            checksum is wrong.
    """
    config = get_pretrained_cfg(backbone, allow_unregistered=False)
    if config is None or not config.hf_hub_id:
        raise ValueError(f"timm has no weights of {backbone!r} on Hugging Face.")
    repository = config.hf_hub_id
    cached = try_to_load_from_cache(repository, FILE)
    if isinstance(cached, str):
        return Path(cached)
    url = hf_hub_url(repository, FILE)
    try:
        get_hf_file_metadata(url)  # one try: the download itself would try again and again
        path = Path(hf_hub_download(repository, FILE))
    except Exception as error:  # of the network, of its library, or of the server
        why = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        raise ConnectionError(
            f"The weights of {backbone} are not on this machine and cannot be downloaded ({why}). "
            f"Get {url} elsewhere and name the file with --model.weights FILE, in Python "
            "weights=FILE; or start at random with none."
        ) from error
    check_sum(path)
    return path


def check_sum(path: Path) -> None:
    """Delete a file of the cache whose content is not what its name says, and raise."""
    blob = path.resolve()
    if not SHA256.fullmatch(blob.name):
        return
    with blob.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != blob.name:
        path.unlink()
        blob.unlink()
        raise ConnectionError(
            f"The download of {path.name} is damaged: its SHA-256 sum is {digest}, not "
            f"{blob.name}. It was deleted; try again."
        )
