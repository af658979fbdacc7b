import argparse
import re
import shutil

import pytest
import timm
import torch
from safetensors.torch import save_file
from timm.layers import resample_abs_pos_embed

from avalanche_hfc.models import DyToxModel, TSAViT, ViTEncoder, load_weights
from avalanche_hfc.models.weights import loaded_from_file

OPTIONS = {"embed_dim": 24, "num_heads": 3, "depth": 6}
SMALL = {
    "backbone": "vit_tiny_patch16_224",
    "image_size": 8,
    "patch_size": 4,
    "msa_blocks": 4,
    "backbone_options": OPTIONS,
}


def model(**changes):
    torch.manual_seed(1)
    return TSAViT(**(SMALL | changes))


def encoder(image_size=8, patch_size=4, num_classes=0):
    """Names and shapes of an MAE file: a bare ViT of six blocks."""
    torch.manual_seed(2)
    vit = timm.create_model(
        "vit_tiny_patch16_224",
        num_classes=num_classes,
        img_size=image_size,
        patch_size=patch_size,
        **OPTIONS,
    )
    return vit.state_dict()


WRITERS = {
    "plain.pth": lambda state, path: torch.save(state, path),
    "model.pth": lambda state, path: torch.save({"model": state, "epoch": 3}, path),
    "state_dict.pt": lambda state, path: torch.save({"state_dict": state}, path),
    "file.safetensors": lambda state, path: save_file(state, path),
    "old.pth": lambda state, path: torch.save(state, path, _use_new_zipfile_serialization=False),
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_form_of_file_brings_the_encoder_and_reports_the_rest(tmp_path, name):
    state = encoder() | {"decoder.weight": torch.ones(2)}
    WRITERS[name](state, tmp_path / name)
    loaded = model()
    random = {key: tensor.clone() for key, tensor in loaded.state_dict().items()}
    report = load_weights(loaded, tmp_path / name)
    own = loaded.state_dict()
    assert (
        set(report.matched) == {key for key in own if key.startswith("backbone.")}
        and report.added == "backbone."
    )
    assert all(
        torch.equal(own[key], state[key.removeprefix("backbone.")]) for key in report.matched
    )
    assert set(report.missing) == {key for key in own if not key.startswith("backbone.")}
    assert all(torch.equal(own[key], random[key]) for key in report.missing)
    assert set(report.unexpected) == {
        "decoder.weight",
        *(key for key in state if key.startswith(("blocks.4.", "blocks.5."))),
    }
    assert report.resampled == () and report.stripped == ""


def test_the_constructor_loads_a_path_and_keeps_the_report(tmp_path):
    torch.save(encoder(), tmp_path / "mae.pth")
    built = model(weights=tmp_path / "mae.pth", adapter_dim=4, frozen_blocks=2)
    assert torch.equal(
        built.backbone.blocks[3].mlp.fc1.weight, encoder()["blocks.3.mlp.fc1.weight"]
    )
    assert sum(".adapter." in name for name in built.load_report.missing) == 16
    assert not built.backbone.blocks[0].mlp.fc1.weight.requires_grad
    assert model(weights=str(tmp_path / "mae.pth")).load_report.matched


def test_position_embeddings_are_resampled_to_the_grid_and_said_to_be(tmp_path):
    state = encoder(image_size=16)
    torch.save(state, tmp_path / "large.pth")
    built = model(image_size=(8, 12))
    report = load_weights(built, tmp_path / "large.pth")
    assert report.resampled == ("backbone.pos_embed",) and "backbone.pos_embed" in report.matched
    position, source = built.backbone.pos_embed.detach(), state["pos_embed"]
    assert position.shape == (1, 7, 24) and torch.equal(position[:, 0], source[:, 0]), (
        "the class token's is copied"
    )
    assert torch.equal(
        position, resample_abs_pos_embed(source, new_size=[2, 3], num_prefix_tokens=1)
    )
    for channel in range(24):
        plane = source[0, 1:, channel].reshape(1, 1, 4, 4)
        wanted = torch.nn.functional.interpolate(plane, size=(2, 3), mode="bicubic", antialias=True)
        torch.testing.assert_close(position[0, 1:, channel], wanted.flatten())


def test_another_shape_is_refused_with_both_and_nothing_is_copied(tmp_path):
    torch.save(encoder(patch_size=2), tmp_path / "small.pth")
    built = model()
    before = {name: tensor.clone() for name, tensor in built.state_dict().items()}
    with pytest.raises(
        ValueError,
        match=r"backbone.patch_embed.proj.weight has shape \(24, 3, 2, 2\), TSAViT needs \(24, 3, 4, 4\)",
    ):
        load_weights(built, tmp_path / "small.pth")
    assert all(torch.equal(tensor, before[name]) for name, tensor in built.state_dict().items())


def test_the_classifier_of_an_encoder_file_is_not_taken_for_the_growing_head(tmp_path):
    torch.save(encoder(num_classes=10), tmp_path / "supervised.pth")
    built = model()
    report = load_weights(built, tmp_path / "supervised.pth")
    assert {"head.weight", "head.bias"} <= set(report.unexpected) and built.head.out_features == 0


def test_a_checkpoint_of_ours_brings_everything_and_the_rows_of_its_head(tmp_path):
    source = model(residual=True).eval()
    with torch.no_grad():
        source.shared_embedding.add_(1)
    source.head.grow([2, 5])
    torch.save(source.state_dict(), tmp_path / "ours.pth")
    target = model(residual=True).eval()
    report = load_weights(target, tmp_path / "ours.pth")
    assert report.missing == report.unexpected == report.resampled == () and report.added == ""
    images = torch.randn(2, 3, 8, 8)
    assert torch.equal(target(images), source(images)) and target(images).shape == (2, 6)


def test_names_with_the_prefix_of_data_parallel_are_stripped_and_it_is_said(tmp_path):
    torch.save(
        {f"module.{name}": tensor for name, tensor in encoder().items()}, tmp_path / "parallel.pth"
    )
    report = load_weights(model(), tmp_path / "parallel.pth")
    assert report.stripped == "module." and "backbone.cls_token" in report.matched
    assert "module.blocks.5.norm1.weight" in report.unexpected


def test_a_file_without_a_matching_tensor_is_refused(tmp_path):
    for name, content in (("other.pth", {"conv1.weight": torch.ones(2)}), ("empty.pth", {})):
        torch.save(content, tmp_path / name)
        with pytest.raises(ValueError, match=f"{name}: no tensor of this file belongs to TSAViT"):
            load_weights(model(), tmp_path / name)


class Harmful:
    def __reduce__(self):
        return (shutil.rmtree, ("/nonexistent/never",))


@pytest.mark.parametrize(
    "content",
    [Harmful(), {"model": encoder(), "args": argparse.Namespace(lr=1)}],
    ids=["code", "namespace"],
)
def test_a_file_with_pickled_objects_is_refused_by_name_and_not_run(tmp_path, content, monkeypatch):
    torch.save(content, tmp_path / "objects.pth")
    monkeypatch.setattr(shutil, "rmtree", lambda *_: pytest.fail("the file was executed"))
    with pytest.raises(ValueError, match=r"objects.pth: it holds pickled objects"):
        load_weights(model(), tmp_path / "objects.pth")


@pytest.mark.parametrize(
    "name", ["cut.pth", "cut.safetensors", "text.pth", "zero.pt", "zero.safetensors"]
)
def test_a_damaged_file_is_refused_by_name(tmp_path, name):
    path = tmp_path / name
    if name.startswith("cut"):
        (save_file if name.endswith("safetensors") else torch.save)(encoder(), path)
        path.write_bytes(path.read_bytes()[:5000])
    else:
        path.write_bytes(b"no weights here" if name.startswith("text") else b"")
    with pytest.raises(ValueError, match=name):
        load_weights(model(), path)


def test_a_missing_file_and_an_unknown_ending_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"absent.pth"):
        model(weights=tmp_path / "absent.pth")
    (tmp_path / "weights.npz").write_bytes(b"")
    with pytest.raises(
        ValueError,
        match=r"weights.npz: a weights file ends in .safetensors, .pth or .pt, not '.npz'",
    ):
        model(weights=tmp_path / "weights.npz")


def test_a_summary_counts_and_names_the_parts_that_were_matched_missing_and_unused(tmp_path):
    save_file(encoder(), tmp_path / "mae.safetensors")
    built = model(weights=tmp_path / "mae.safetensors")
    report = built.load_report
    said = re.fullmatch(
        r"matched (\d+), missing (\d+) \(shared_embedding, tsa\.\*, head\.\*\), "
        r"unused (\d+) \(blocks\.4\.\*, blocks\.5\.\*\)",
        report.summary(),
    )
    counts = [len(names) for names in (report.matched, report.missing, report.unexpected)]
    assert said is not None and [int(number) for number in said.groups()] == counts
    assert loaded_from_file(built) == report.summary()
    dytox = DyToxModel(ViTEncoder(**SMALL, weights=tmp_path / "mae.safetensors"))
    assert loaded_from_file(dytox).startswith(f"matched {counts[0]}, missing 0, unused")
    assert loaded_from_file(model()) == "no weights file"
    larger = model(weights=tmp_path / "mae.safetensors", image_size=2 * SMALL["image_size"])
    assert loaded_from_file(larger) == f"{report.summary()}, resampled backbone.pos_embed"


def test_a_file_of_another_number_of_heads_is_refused_though_its_shapes_fit(tmp_path):
    save_file(encoder(), tmp_path / "six.safetensors", metadata={"num_heads": "6"})
    with pytest.raises(ValueError, match="the file has 6 attention heads, TSAViT has 3"):
        model(weights=tmp_path / "six.safetensors")
    save_file(encoder(), tmp_path / "three.safetensors", metadata={"num_heads": "3"})
    assert model(weights=tmp_path / "three.safetensors").load_report.matched


@pytest.mark.parametrize("prefix", ["", "module.", "backbone."])
def test_a_file_of_fewer_blocks_is_refused_with_both_numbers(tmp_path, prefix):
    short = {
        f"{prefix}{name}": value
        for name, value in encoder().items()
        if not name.startswith(("blocks.3.", "blocks.4.", "blocks.5."))
    }
    path = tmp_path / "three.safetensors"
    save_file(short, path)
    with pytest.raises(ValueError, match="the file has 3 blocks, TSAViT has 4. .* at most 3"):
        model(weights=path)
    with pytest.raises(ValueError, match="the file has 3 blocks, ViTEncoder has 4"):
        ViTEncoder(**SMALL, weights=path)
    built = model(weights=path, msa_blocks=3)  # the TSA block is not in the file
    assert all(name.startswith(("tsa.", "head.", "shared")) for name in built.load_report.missing)
    assert model(weights=path, msa_blocks=2, adapter_dim=4).load_report.matched


def test_a_packaged_file_is_loaded_by_name_and_another_name_is_refused_with_those_allowed(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("avalanche_hfc.models.weights.PACKAGED", tmp_path)
    save_file(
        {name: value.half() for name, value in encoder().items()}, tmp_path / "own.safetensors"
    )
    built = model(weights="own")
    found = built.backbone.blocks[3].mlp.fc1.weight
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, encoder()["blocks.3.mlp.fc1.weight"], atol=1e-4, rtol=1e-3)
    with pytest.raises(FileNotFoundError, match=r"owl\. Allowed: none, timm, own, or a file"):
        model(weights="owl")
