"""The weights that ship with the package: size, what each network takes of them, and their card."""

import csv
import hashlib
import json
from pathlib import Path

import torch
from safetensors.torch import load_file

from avalanche_hfc.lab.schema import PretrainRecipe
from avalanche_hfc.models import DyToxModel, TSAViT, ViT, ViTEncoder
from avalanche_hfc.models.weights import PACKAGED, packaged_weights

FILE = PACKAGED / "small-mae.safetensors"
RUN = Path(__file__).parents[2] / "experiments" / "results" / "small-mae"
SMALL = {"backbone": "vit_tiny_patch16_224", "image_size": 32, "patch_size": 8}


def test_the_file_holds_six_blocks_in_half_precision_and_at_most_6_mb():
    tensors = load_file(FILE)
    assert packaged_weights() == ["small-mae"] and FILE.stat().st_size < 6e6
    assert {value.dtype for value in tensors.values()} == {torch.float16}
    assert all(value.isfinite().all() for value in tensors.values())
    assert {name.split(".")[1] for name in tensors if name.startswith("blocks.")} == set("012345")


def test_plain_vits_take_all_of_it_and_those_with_a_last_block_of_their_own_five_blocks():
    own = {"ViT": "head.", "TSAViT": ("head.", "tsa.", "shared_embedding")}
    plain = ViT(**SMALL, msa_blocks=6, weights="small-mae").load_report
    tsa = TSAViT(**SMALL, msa_blocks=5, weights="small-mae").load_report
    dytox = DyToxModel(ViTEncoder(**SMALL, msa_blocks=5, weights="small-mae")).encoder.load_report
    assert plain.unexpected == () and all(name.startswith(own["ViT"]) for name in plain.missing)
    assert all(name.startswith(own["TSAViT"]) for name in tsa.missing) and dytox.missing == ()
    for report in (tsa, dytox):
        assert report.unexpected and all(n.startswith("blocks.5.") for n in report.unexpected)


def test_the_card_names_the_file_and_the_run_is_that_of_the_default_recipe():
    card = (PACKAGED / "small-mae.md").read_text()
    note = json.loads((RUN / "recipe.json").read_text())
    with (RUN / "train.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert hashlib.sha256(FILE.read_bytes()).hexdigest() in card
    expected = PretrainRecipe(dtype="float16").as_dict()
    assert {name: note["recipe"][name] for name in expected} == expected and note["finished"]
    assert len(rows) == expected["epochs"] and f"{float(rows[-1]['loss']):.4f}" in card
    losses = [float(row["loss"]) for row in rows]
    assert losses[-1] < min(losses) + 1e-3 < 0.75 * losses[0]


def test_the_file_is_what_its_recipe_made_again():
    first, again = (json.loads((RUN / name).read_text()) for name in ("recipe.json", "again.json"))
    assert again["sha256"] == hashlib.sha256(FILE.read_bytes()).hexdigest()
    for same in ("recipe", "seed", "machine"):
        assert again[same] == first[same]
    assert again["finished"] > first["finished"]
    assert (
        f"version {again['versions']['avalanche_hfc']} on"
        in (PACKAGED / "small-mae.md").read_text()
    )
