import copy

import pytest
import torch
from small_vits import assert_map, images, small
from torch import nn

from avalanche_hfc.models import TSAViT


def watch(model):
    """Every call of a block: its number from 1, its output."""
    calls = []
    for end, block in enumerate(model.backbone.blocks, start=1):
        block.register_forward_hook(lambda _, __, output, end=end: calls.append((end, output)))
    return calls


def count(parameters):
    return sum(parameter.numel() for parameter in parameters)


def test_vit_base_has_the_parameters_of_the_paper_s_geometry():
    with torch.device("meta"):
        model = TSAViT()
        vit = model.backbone
        assert count(model.parameters()) == 85_797_120
        parts = (vit.patch_embed, vit.norm, vit.blocks, model.tsa)
        assert [count(part.parameters()) for part in parts] == [
            590_592,
            1_536,
            77_966_592,
            7_085_568,
        ]
        assert [vit.cls_token.numel(), vit.pos_embed.numel(), model.shared_embedding.numel()] == [
            768,
            151_296,
            768,
        ]
        assert all(count(block.parameters()) == 7_087_872 for block in vit.blocks)
        model.head.grow(range(100))
        assert count(model.parameters()) == 85_797_120 + 76_900


def test_vit_base_with_adapters_and_five_frozen_blocks_has_the_released_code_s_parameters():
    with torch.device("meta"):
        model = TSAViT(adapter_dim=64, frozen_blocks=5)
    assert count(model.parameters()) == 86_887_616
    assert [count(block.adapter.parameters()) for block in model.backbone.blocks] == [99_136] * 11
    assert count(p for p in model.parameters() if not p.requires_grad) == 36_182_016
    assert count(p for p in model.parameters() if p.requires_grad) == 50_705_600
    assert model.backbone_name == "vit_base_patch16_224.mae" and model.pretrained_tag == "mae"


def test_the_encoder_is_timm_s_and_the_tsa_blocks_chain_their_embeddings():
    model = small(tsa_blocks=3, msa_blocks=6).eval()
    tokens = model.backbone.forward_features(images())
    embedding = model.shared_embedding
    for block in model.tsa:
        embedding = block(embedding, tokens)
    assert torch.equal(model.embed(images()), embedding) and torch.equal(
        model.features(images()).tokens, tokens
    )


@pytest.mark.parametrize("adapter_dim", [0, 4])
def test_frozen_parameters_get_no_gradient_and_the_others_do(adapter_dim):
    model = small(frozen_blocks=2, adapter_dim=adapter_dim)
    model.head.grow([0, 1])
    model(images()).square().sum().backward()
    embeddings = ("backbone.patch_embed.", "backbone.cls_token", "backbone.pos_embed")
    blocks = ("backbone.blocks.0.", "backbone.blocks.1.")
    for name, parameter in model.named_parameters():
        frozen = name.startswith(embeddings) or (
            name.startswith(blocks) and ".adapter." not in name
        )
        assert parameter.requires_grad != frozen and (parameter.grad is None) == frozen, name


def test_a_given_prefix_gives_bitwise_the_full_forward_in_value_and_gradient():
    model = small(frozen_blocks=2)
    model.head.grow([0, 1])
    prefix = model.prefix(images())
    assert prefix.shape == (3, 5, 24) and not model.prefix(images().requires_grad_()).requires_grad
    trained = [p for p in model.parameters() if p.requires_grad]
    shared, full = model.embed(images(), prefix), model.embed(images())
    assert torch.equal(shared, full)
    gradients = [
        torch.autograd.grad(model.classify(e).square().sum(), trained) for e in (shared, full)
    ]
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
    assert torch.equal(model.embed(images() + 9, prefix), full), "the images are not read again"


def test_a_teacher_shares_the_prefix_of_the_student():
    student = small(frozen_blocks=2)
    teacher = copy.deepcopy(student).eval()
    with torch.no_grad():
        for parameter in student.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1)
    prefix = student.train().prefix(images())
    assert torch.equal(teacher.embed(images(), prefix), teacher.embed(images()))


def test_a_frozen_prefix_stays_in_eval_mode_and_the_rest_follows():
    model = small(frozen_blocks=2, backbone_options={"proj_drop_rate": 0.5, "pos_drop_rate": 0.5})
    assert torch.equal(model.train().prefix(images()), model.eval().prefix(images()))
    model.train()
    assert [block.training for block in model.backbone.blocks] == [
        False,
        False,
        True,
        True,
    ] and model.tsa.training
    assert not torch.equal(model.embed(images()), model.embed(images()))


@pytest.mark.parametrize(
    "arguments", [{}, {"frozen_blocks": 2, "adapter_dim": 4}], ids=["nothing frozen", "adapters"]
)
def test_where_nothing_can_be_shared_the_prefix_is_none_and_another_is_refused(arguments):
    model = small(**arguments)
    assert model.prefix(images()) is None and model.backbone.blocks[0].training
    assert model.embed(images(), None).shape == (3, 24)
    with pytest.raises(ValueError, match="no frozen blocks"):
        model.embed(images(), torch.zeros(3, 5, 24))


def test_adapters_start_as_the_model_without_them_and_then_matter():
    model, adapted = small().eval(), small(adapter_dim=4).eval()
    missing = adapted.load_state_dict(model.state_dict(), strict=False).missing_keys
    assert all(".adapter." in name for name in missing) and len(missing) == 16
    assert torch.equal(adapted.embed(images()), model.embed(images()))
    nn.init.normal_(adapted.backbone.blocks[0].adapter.up.weight)
    assert not torch.equal(adapted.embed(images()), model.embed(images()))


def test_features_are_embed_and_its_tokens_and_the_outputs_of_four_blocks_from_one_forward():
    model = small(backbone_options={"reg_tokens": 2}, image_size=(8, 12), frozen_blocks=2).eval()
    x = torch.randn(2, 3, 8, 12)
    calls = watch(model)
    features = model.features(x)
    assert [end for end, _ in calls] == [1, 2, 3, 4]
    outputs = dict(calls)
    assert torch.equal(features.embedding, model.embed(x)) and torch.equal(
        features.tokens, model.backbone.norm(outputs[4])
    )
    assert len(features.stages) == 4
    for end, stage in zip((1, 2, 3, 4), features.stages, strict=True):
        assert_map(stage, outputs[end][:, 3:], (2, 3))  # class token and two registers first


@pytest.mark.parametrize(
    "msa_blocks, ends",
    [(1, (1,) * 4), (2, (1, 1, 2, 2)), (3, (1, 2, 2, 3)), (5, (1, 2, 4, 5)), (6, (2, 3, 4, 6))],
)
def test_stage_k_ends_with_block_round_k_l_m_over_4(msa_blocks, ends):
    model = small(msa_blocks=msa_blocks).eval()
    calls = watch(model)
    stages, outputs = model.features(images()).stages, dict(calls)
    for end, stage in zip(ends, stages, strict=True):
        assert_map(stage, outputs[end][:, 1:], (2, 2))


def test_a_dynamic_vit_gives_stages_of_the_image_s_own_grid():
    model = small(backbone_options={"dynamic_img_size": True}).eval()
    assert [stage.shape[2:] for stage in model.features(torch.randn(2, 3, 12, 16)).stages] == [
        (3, 4)
    ] * 4


def test_the_shared_embedding_starts_truncated_normal_or_at_zero():
    embedding = small(
        backbone_options={"embed_dim": 600, "depth": 1}, msa_blocks=1
    ).shared_embedding
    assert embedding.std().item() == pytest.approx(0.02, rel=0.1) and embedding.requires_grad
    assert not small(embedding_std=0).shared_embedding.any()
