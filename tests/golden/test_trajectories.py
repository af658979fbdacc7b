"""Every method follows its authors' training update by update: the recordings in this folder."""

import methods
import pytest
from recordings import load
from replay import follow

NAMES = [
    "hfc_official",
    "hfc_paper",
    "dytox",
    "icarl",
    "bic",
    "podnet_switched",
    "afc_switched",
    "podnet_released",
    "afc_released",
    "podnet_cscct",
    "ssil",
    "foster",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_trajectory_of_the_authors_is_followed(name, monkeypatch):
    recording = load(name)
    follow(recording, getattr(methods, name)(recording), monkeypatch)
