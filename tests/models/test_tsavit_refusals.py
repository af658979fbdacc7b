import pytest
import timm
import torch
from small_vits import small

from avalanche_hfc.models import TSAViT


def test_weights_timm_is_the_only_value_that_fetches(monkeypatch):
    asked = []
    create = timm.create_model

    def recorded(name, *, pretrained, **kwargs):
        asked.append(pretrained)
        return create(name, pretrained=False, **kwargs)

    monkeypatch.setattr(timm, "create_model", recorded)
    monkeypatch.setattr("avalanche_hfc.models.backbone.weights_file", lambda name: "a file")
    small()
    assert asked == [False]
    with pytest.raises(ValueError, match="msa_blocks"):
        small(weights="timm", msa_blocks=9)
    assert asked == [False, False]
    assert small(weights="timm").load_report is None and asked[-1] is True


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"image_size": 9}, "image_size 9 is not a multiple of patch_size 4; the nearest is 8"),
        ({"image_size": (8, 10)}, "image_size 10 is not a multiple of patch_size 4"),
        ({"msa_blocks": 0}, r"TSAViT: msa_blocks must be in 1…6.* got msa_blocks=0"),
        ({"msa_blocks": 7}, "got msa_blocks=7"),
        ({"msa_blocks": None, "tsa_blocks": 6}, r"got msa_blocks=0 \(tsa_blocks=6\)"),
        ({"tsa_blocks": 0}, "tsa_blocks must be 1 or more, .* got 0"),
        ({"frozen_blocks": 5}, "frozen_blocks in 0…msa_blocks.* frozen_blocks=5"),
        ({"frozen_blocks": -1}, "frozen_blocks=-1"),
        ({"adapter_dim": -3}, "adapter_dim 0 or more, .* adapter_dim=-3"),
        ({"drop_path": 1.0}, r"drop_path in \[0, 1\), got 1, 0.02 and 1.0"),
        ({"embedding_std": -0.1}, "embedding_std 0 or more .* got 1, -0.1"),
        ({"backbone_options": {"embed_dims": 12}}, "unexpected keyword argument 'embed_dims'"),
        ({"backbone_options": {"img_size": 12}}, "keyword argument 'img_size'"),
        ({"backbone_options": {"embed_dim": 25}}, "timm cannot build .*'embed_dim': 25"),
        ({"backbone_options": {"patch_drop_rate": 0.5}}, "patch_drop_rate must be 0"),
    ],
    ids=str,
)
def test_a_wrong_value_is_refused_with_what_is_allowed(arguments, message):
    with pytest.raises(ValueError, match=message):
        small(**arguments)


@pytest.mark.parametrize(
    "name, message",
    [
        (
            "vit_tiny_patch16_225",
            "Unknown backbone 'vit_tiny_patch16_225'. Did you mean .*vit_tiny_patch16_224",
        ),
        (
            "vit_base_patch16_224.mea",
            "Invalid pretrained tag .mea.* Did you mean .*vit_base_patch16_224.mae",
        ),
        ("hf_hub:someone/model", "Unknown backbone"),
        ("resnet18", "'resnet18' is not one of timm's plain VisionTransformers"),
        ("beit_base_patch16_224", "'beit_base_patch16_224' is not one of"),
        ("vit_base_patch16_rpn_224", "'vit_base_patch16_rpn_224' is not one of"),
    ],
)
def test_a_backbone_that_will_not_do_is_refused_by_name(name, message):
    with torch.device("meta"), pytest.raises(ValueError, match=message):
        TSAViT(name)


@pytest.mark.parametrize("shape", [(2, 3, 12, 8), (2, 1, 8, 8)])
def test_images_of_another_form_are_refused_with_both_forms(shape):
    with pytest.raises(
        ValueError,
        match=rf"TSAViT: images must be \(3, 8, 8\), got \({shape[1]}, {shape[2]}, {shape[3]}\)",
    ):
        small()(torch.zeros(shape))


def test_a_backbone_that_takes_any_size_still_does():
    model = small(backbone_options={"dynamic_img_size": True})
    model.head.grow([0])
    assert model(torch.zeros(2, 3, 12, 8)).isfinite().all()
