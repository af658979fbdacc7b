import pytest
import timm
import torch
from small_backbones import SMALL, vit
from small_vits import assert_map, images

from avalanche_hfc.models import ViTEncoder


def test_the_embedding_is_timm_s_class_token_after_the_final_norm():
    torch.manual_seed(0)
    reference = timm.create_model(
        "vit_tiny_patch16_224",
        num_classes=0,
        img_size=8,
        patch_size=4,
        embed_dim=24,
        num_heads=3,
        depth=6,
    )
    model = vit().eval()
    model.backbone.load_state_dict(reference.state_dict())
    assert torch.equal(model.embed(images()), reference.eval()(images()))
    assert torch.equal(model.get_features(images()), model.embed(images()))


@pytest.mark.parametrize(
    "msa_blocks, ends",
    [
        (1, (0,) * 4),
        (2, (1,) * 4),
        (3, (1, 1, 2, 2)),
        (4, (1, 2, 2, 3)),
        (5, (1, 2, 3, 4)),
        (6, (1, 2, 4, 5)),
    ],
)
@pytest.mark.parametrize("frozen_blocks", [0, 1])
def test_stage_k_ends_with_block_round_k_times_one_less_than_l_m_over_4_and_comes_with_embedding_and_tokens(
    msa_blocks, ends, frozen_blocks
):
    model, outputs = vit(msa_blocks=msa_blocks, frozen_blocks=frozen_blocks).eval(), {}
    for number, block in enumerate(model.backbone.blocks, start=1):
        block.register_forward_hook(
            lambda _, __, output, number=number: outputs.update({number: output})
        )
    model.backbone.blocks[0].register_forward_pre_hook(
        lambda _, inputs: outputs.update({0: inputs[0]})
    )
    features = model.features(images())
    for stage, number in zip(features.stages, ends, strict=True):
        assert_map(stage, outputs[number][:, 1:], (2, 2))
    assert torch.equal(features.embedding, features.tokens[:, 0]) and torch.equal(
        features.tokens, model.tokens(images())
    )


def test_a_backbone_without_class_token_is_refused():
    with pytest.raises(ValueError, match="class token"):
        vit(backbone_options={**SMALL["backbone_options"], "class_token": False})


def test_an_encoder_gives_the_tokens_of_the_vit_and_holds_no_head():
    model, encoder = vit(frozen_blocks=1).eval(), vit(ViTEncoder, frozen_blocks=1).eval()
    encoder.load_state_dict(
        {name: t for name, t in model.state_dict().items() if not name.startswith("head.")}
    )
    assert torch.equal(encoder.tokens(images()), model.features(images()).tokens)
    before = [p.requires_grad for p in encoder.parameters()]
    encoder.set_trainable(False)
    assert not any(p.requires_grad for p in encoder.parameters())
    encoder.set_trainable(True)
    assert [p.requires_grad for p in encoder.parameters()] == before and not all(before)
