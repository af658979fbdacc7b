"""A weights file of another width brings its geometry."""

import pytest
import timm
import torch
from safetensors.torch import save_file

from avalanche_hfc.lab import override, recipe
from avalanche_hfc.lab.build import build_model
from avalanche_hfc.lab.overrides import BACKBONES, geometry_of
from avalanche_hfc.lab.run import remarks_of
from avalanche_hfc.models.weights import loaded_from_file

pytestmark = pytest.mark.quick

SMALL = "cifar100-b0-t10-hfc@small"


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """The weights of a ViT-Tiny, three times as wide as its heads are many."""
    path = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    save_file(timm.create_model("vit_tiny_patch16_224", num_classes=0).state_dict(), path)
    return path


def test_the_geometry_of_the_file_wins_and_is_said(file):
    own = override(recipe(SMALL), {"weights": str(file)})
    options = dict(own.model.options)
    assert (options["embed_dim"], options["patch_size"], options["msa_blocks"]) == (None, 16, 11)
    model = build_model(own)
    assert (model.embed_dim, model.num_heads) == (192, 3)
    assert loaded_from_file(model).startswith("matched 138,")
    assert own.sources["model.patch_size"] == "the weights file"
    assert own.sources["model.weights"] == "given by the user"
    line, resampled = remarks_of(own, model)  # the file is of 224 px, the recipe of 32
    assert "model.patch_size 16" in line and "model.msa_blocks 11" in line and "none" not in line
    assert resampled.endswith("its position embeddings are resampled.")
    same = recipe(SMALL)
    assert [*remarks_of(same, build_model(same))] == []
    plain = override(recipe("cifar100-b0-t10-icarl@small"), {"weights": str(file)})
    assert dict(plain.model.options)["msa_blocks"] == 12  # no TSA block behind them


def test_a_geometry_that_the_user_chose_and_that_of_other_files_stay(file, tmp_path):
    chosen = override(recipe(SMALL), {"weights": str(file), "embed_dim": "64"})
    assert dict(chosen.model.options)["patch_size"] == 8
    narrow = tmp_path / "narrow.safetensors"
    save_file({"patch_embed.proj.weight": torch.zeros(128, 3, 8, 8)}, narrow)
    assert geometry_of(narrow) == {}
    kept = override(recipe(SMALL), {"weights": str(narrow)})
    assert dict(kept.model.options) == {
        **dict(recipe(SMALL).model.options), "weights": str(narrow),
    }  # fmt: skip


def test_more_blocks_than_the_file_has_are_refused_with_both_numbers():
    with pytest.raises(ValueError, match="the file has 6 blocks, TSAViT has 7"):
        build_model(override(recipe(SMALL), {"msa_blocks": "7"}))
    for blocks in ("1", "6"):  # TSA stands behind them
        own = override(recipe(SMALL), {"msa_blocks": blocks})
        assert loaded_from_file(build_model(own)).startswith("matched")
    own = override(recipe(SMALL), {"msa_blocks": "7", "weights": "none"})
    assert dict(own.model.options)["msa_blocks"] == 7


def test_the_backbones_have_these_widths_and_heads_of_64():
    for width, name in BACKBONES.items():
        vit = timm.create_model(name, num_classes=0, depth=1)
        assert vit.embed_dim == width == 64 * vit.blocks[0].attn.num_heads
