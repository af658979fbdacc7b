import copy
import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from small_backbones import encoder, vit_encoder
from small_vits import images
from timm.models.convit import ConVit

from avalanche_hfc.models import ConViTEncoder, DyToxModel, TaskTokens


def model(*steps, own=encoder, dtype=torch.float32):
    net = DyToxModel(own()).to(dtype)
    for class_ids in steps or ([4, 1], [0, 6]):
        net.head.grow(class_ids)
    return net


def tokens_of(head, dtype=torch.float64, batch=3):
    return torch.randn(batch, 7, head.dim, generator=torch.Generator().manual_seed(2), dtype=dtype)


def task_tokens(*steps, dtype=torch.float64, drop_path=0.0):
    torch.manual_seed(0)
    head = TaskTokens(12, 3, drop_path=drop_path).to(dtype)
    for class_ids in steps:
        head.grow(class_ids)
    generator = torch.Generator().manual_seed(4)
    for parameter in head.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator, dtype=dtype)
    return head


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def test_encoder_and_tab_have_dytox_s_10_7_million_parameters():
    net = DyToxModel()
    assert [count(block) for block in net.encoder.blocks] == [1_773_372] * 5
    assert (
        count(net.encoder) == 5 * 1_773_372 + 18_816 + 64 * 384
        and count(net.head.block) == 1_773_312
    )
    assert count(net) == 10_683_564
    for step in range(10):
        net.head.grow(range(10 * step, 10 * step + 10))
    assert count(net) - count(net.head.divergence) == 10_683_564 + 10 * (384 + 768 + 3_850)
    rates = [getattr(block.drop_path, "drop_prob", 0.0) for block in net.encoder.blocks]
    assert [*rates, net.head.block.drop_path.drop_prob] == pytest.approx(
        [0, 0.02, 0.04, 0.06, 0.08, 0.1]
    )
    assert all(
        block.attn.qk.bias is None and block.attn.v.bias is None for block in net.encoder.blocks
    )


def test_the_encoder_is_timm_s_convit_up_to_where_its_class_token_enters():
    ours = encoder().eval()
    reference = ConVit(
        8,
        2,
        num_classes=0,
        embed_dim=4,
        depth=5,
        num_heads=5,
        local_up_to_layer=5,
        norm_layer=torch.nn.LayerNorm,
    ).eval()
    missing = reference.load_state_dict(ours.state_dict(), strict=False)
    assert not missing.unexpected_keys and set(missing.missing_keys) == {
        "cls_token",
        "norm.weight",
        "norm.bias",
    }
    expected = reference.forward_features(images())
    assert torch.equal(reference.norm(ours.tokens(images())), expected) and torch.equal(
        ours(images()), ours.tokens(images())
    )


def test_the_encoder_follows_a_change_of_dtype_after_a_forward_in_inference_mode():
    net = encoder().eval()
    with torch.inference_mode():
        single = net.tokens(images())
    net.tokens(images()).sum().backward()
    double = net.double().tokens(images(dtype=torch.float64))
    torch.testing.assert_close(double.float(), single, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def loop_embedding(head, token, tokens):
    """DyTox's TAB for one token and one sample, head by head, key by key."""
    block = head.block
    keys = block.norm1(torch.cat([token, tokens]))
    pieces = []
    for number in range(3):
        own = slice(4 * number, 4 * number + 4)
        query = (block.query.weight @ keys[0])[own]
        scores = [float(query @ (block.key.weight @ key)[own]) / 2 for key in keys]
        total = sum(math.exp(score) for score in scores)
        pieces.append(
            sum(
                math.exp(score) / total * (block.value.weight @ key)[own]
                for score, key in zip(scores, keys, strict=True)
            )
        )
    pooled = token[0] + block.project(torch.cat(pieces))
    return pooled + block.mlp(block.norm2(pooled))


def test_embeddings_are_one_pass_of_the_shared_block_per_token_and_logits_one_head_per_step():
    head = task_tokens([4, 1], [0, 6, 7])
    tokens = tokens_of(head)
    embeddings = head.embeddings(tokens)
    logits, divergence = head(embeddings), head.divergence_logits(embeddings)
    for sample in range(3):
        own = [loop_embedding(head, token, tokens[sample]) for token in head.tokens]
        torch.testing.assert_close(embeddings[sample], torch.cat(own), rtol=1e-10, atol=1e-12)
        for step, columns in enumerate(([1, 4], [0, 6, 7])):
            part = head.heads[step]
            normed = F.layer_norm(own[step], (12,), part.norm.weight, part.norm.bias)
            torch.testing.assert_close(
                logits[sample, columns],
                part.linear.weight @ normed + part.linear.bias,
                rtol=1e-10,
                atol=1e-12,
            )
        newest = head.divergence
        expected = (
            newest.linear.weight @ F.layer_norm(own[1], (12,), newest.norm.weight, newest.norm.bias)
            + newest.linear.bias
        )
        torch.testing.assert_close(divergence[sample], expected, rtol=1e-10, atol=1e-12)
    assert (
        logits.shape == (3, 8)
        and (logits[:, [2, 3, 5]] == -1000).all()
        and divergence.shape == (3, 4)
    )
    assert head.seen.nonzero().flatten().tolist() == [0, 1, 4, 6, 7]


def test_the_divergence_labels_are_0_for_old_classes_and_count_the_new_ones():
    head = task_tokens([4, 1], [6, 0, 9])
    assert head.divergence_targets(torch.tensor([1, 0, 9, 4, 6])).tolist() == [0, 1, 3, 0, 2]


def test_the_divergence_head_comes_with_the_second_step_and_is_new_in_each():
    head = task_tokens([4, 1])
    head.grow([0])
    first = head.divergence
    assert head.divergence.linear.out_features == 2
    head.grow([5, 6])
    assert head.divergence is not first and head.divergence.linear.out_features == 3
    assert [name for name, _ in head.named_parameters() if "divergence" in name] == [
        f"divergence.{part}"
        for part in ("norm.weight", "norm.bias", "linear.weight", "linear.bias")
    ]


def test_growth_keeps_old_tokens_and_heads_bit_for_bit_and_classes_that_come_back_add_none():
    net = model(dtype=torch.float64).eval()
    parameters = {name: p for name, p in net.named_parameters() if "divergence" not in name}
    bits, logits = (
        {name: p.detach().clone() for name, p in parameters.items()},
        net(images(dtype=torch.float64)),
    )
    net.head.grow([9, 2])
    now = dict(net.named_parameters())
    assert all(
        now[name] is p and torch.equal(p, bits[name]) and p.dtype == torch.float64
        for name, p in parameters.items()
    )
    torch.testing.assert_close(
        net(images(dtype=torch.float64))[:, [0, 1, 4, 6]],
        logits[:, [0, 1, 4, 6]],
        rtol=1e-12,
        atol=1e-12,
    )
    net.head.grow([9, 0])
    assert (
        len(net.head.heads) == 3
        and net.embed_dim == 60
        and net.embed(images(dtype=torch.float64)).shape == (3, 60)
    )


def moved(net):
    """The names that an optimizer step with decay changes."""
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, weight_decay=0.1)
    embedding = net.embed(images())
    loss = net.classify(embedding)[:, net.head.seen].square().sum()
    if net.head.divergence is not None:
        loss = loss + net.divergence(embedding).square().sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return {name for name, p in net.named_parameters() if not torch.equal(p, before[name])}


@pytest.mark.parametrize(
    "own, resting",
    [(encoder, ()), (lambda: vit_encoder(frozen_blocks=1), ("encoder.backbone.blocks.0.",))],
)
def test_each_phase_moves_its_own_parameters(own, resting):
    net = model([4, 1], [0, 6], own=own)
    names = {name for name, _ in net.named_parameters()}
    front = (
        tuple(f"encoder.backbone.{part}" for part in ("cls_token", "pos_embed", "patch_embed"))
        if resting
        else ()
    )
    frozen = {name for name in names if name.startswith((*resting, *front))} if resting else set()
    old = {name for name in names if name.startswith(("head.tokens.0", "head.heads.0."))}
    assert len(old) == 5 and moved(net) == names - frozen - old
    net.set_phase("tune")
    aside = {name for name in names if name.startswith(("encoder.", "head.divergence."))}
    assert moved(net) == names - aside
    net.train()
    net.adaptation(SimpleNamespace(classes_in_this_experience=[9]))
    net.head.adaptation(SimpleNamespace(classes_in_this_experience=[9]))
    still = {
        name
        for name, _ in net.named_parameters()
        if name.startswith(("head.tokens.1", "head.heads.1."))
    }
    assert moved(net) == {name for name, _ in net.named_parameters()} - frozen - old - still


@pytest.mark.parametrize("own", [encoder, vit_encoder, lambda: vit_encoder(frozen_blocks=1)])
def test_the_model_composes_encoder_tokens_and_heads(own):
    net = model(own=own).eval()
    tokens, stages = net.encoder.tokens_and_stages(images())
    features = net.features(images())
    assert torch.equal(features.tokens, tokens) and torch.equal(
        features.embedding, net.head.embeddings(tokens)
    )
    assert (
        all(torch.equal(a, b) for a, b in zip(features.stages, stages, strict=True))
        and len(stages) == 4
    )
    assert torch.equal(net(images()), net.head(features.embedding)) and torch.equal(
        net.get_features(images()), features.embedding
    )
    prefix = net.prefix(images())
    assert (prefix is None) == (not net.shares_prefix)
    assert torch.equal(net.embed(images(), prefix), features.embedding)


def test_a_state_dict_of_other_sizes_and_a_copy_give_the_same_logits():
    source = model().eval()
    for target in (DyToxModel(encoder()), model([0], [1], [2, 3]), model([0, 1, 2], [3])):
        target.load_state_dict(source.state_dict())
        assert torch.equal(target.eval()(images()), source(images()))
        embedding = source.embed(images())
        assert torch.equal(target.divergence(embedding), source.divergence(embedding))
        assert [p.requires_grad for p in target.parameters()] == [
            p.requires_grad for p in source.parameters()
        ]
        target.head.grow([6, 2])
        assert target.head.heads[2].class_ids.tolist() == [2]
    twin = copy.deepcopy(source)
    source.head.grow([20])
    assert twin(images()).shape == (3, 7) and len(twin.head.tokens) == 2
    first = model([3])
    twin.load_state_dict(first.state_dict())
    assert torch.equal(twin(images()), first.eval()(images())) and twin.head.divergence is None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"image_size": 9}, "multiple of patch_size .* got 9 and 4"),
        ({"num_heads": 5}, "of num_heads, .* 384 and 5"),
        ({"num_blocks": 0}, "num_blocks must be 1 or more"),
        ({"drop_path": 1.0}, r"drop_path in \[0, 1\), got 5 and 1.0"),
    ],
    ids=str,
)
def test_sizes_of_the_encoder_that_do_not_fit_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        ConViTEncoder(**wrong)
    with pytest.raises(ValueError, match="DyToxModel: drop_path must be in"):
        DyToxModel(ConViTEncoder(image_size=8), drop_path=-0.1)
