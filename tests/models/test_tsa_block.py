import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from avalanche_hfc.models import AdaptedBlock, TSABlock


def block_and_tokens(*, residual, dtype=torch.float64, drop_path=0.0, num_tokens=7, batch=3):
    """A block whose norms and biases are not neutral, so that a missing one shows."""
    torch.manual_seed(0)
    block = TSABlock(12, 3, residual=residual, drop_path=drop_path).to(dtype)
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    embedding = torch.randn(1, 12, dtype=dtype, requires_grad=True)
    tokens = torch.randn(batch, num_tokens, 12, dtype=dtype, requires_grad=True)
    return block, embedding, tokens


def plain(block, embedding, tokens):
    """The unfolded block: three projections, all heads by scaled_dot_product_attention."""
    query_in, keys_in = block.norm1(embedding), block.norm1(tokens)
    if block.residual:
        keys_in = torch.cat([query_in.expand(len(tokens), -1)[:, None], keys_in], dim=1)
    query, key, value = (
        linear(part).unflatten(-1, (block.num_heads, -1)).transpose(1, 2)
        for linear, part in (
            (block.query, query_in[:, None]),
            (block.key, keys_in),
            (block.value, keys_in),
        )
    )
    attended = F.scaled_dot_product_attention(query.expand(len(tokens), -1, -1, -1), key, value)
    pooled = block.project(attended.transpose(1, 2).flatten(1))
    if block.residual:
        pooled = embedding + pooled
    return pooled + block.mlp(block.norm2(pooled))


def norm(vector, layer):
    centred = vector - vector.mean()
    return centred / math.sqrt(centred.square().mean().item() + 1e-5) * layer.weight + layer.bias


def loop(block, embedding, tokens):
    """One sample at a time, one head at a time, from Eq. 3-4 and the released code's block."""
    outputs = []
    for sample in tokens:
        rows = [norm(token, block.norm1) for token in sample]
        own = norm(embedding[0], block.norm1)
        if block.residual:
            rows.insert(0, own)
        heads = []
        for h in range(3):
            of_head = slice(4 * h, 4 * h + 4)
            query = block.query.weight[of_head] @ own
            exps = [
                math.exp((query @ (block.key.weight[of_head] @ row)).item() / math.sqrt(4))
                for row in rows
            ]
            heads.append(
                sum(
                    e / sum(exps) * (block.value.weight[of_head] @ row)
                    for e, row in zip(exps, rows, strict=True)
                )
            )
        s = block.project.weight @ torch.cat(heads) + block.project.bias
        if block.residual:
            s = s + embedding[0]
        hidden = block.mlp.fc1.weight @ norm(s, block.norm2) + block.mlp.fc1.bias
        gelu = torch.stack([0.5 * x * (1 + math.erf(x.item() / math.sqrt(2))) for x in hidden])
        outputs.append(s + block.mlp.fc2.weight @ gelu + block.mlp.fc2.bias)
    return torch.stack(outputs)


@pytest.mark.parametrize("residual", [False, True], ids=["paper", "released"])
def test_the_block_is_equations_3_and_4(residual):
    block, embedding, tokens = block_and_tokens(residual=residual)
    torch.testing.assert_close(
        block(embedding, tokens), loop(block, embedding, tokens), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize(
    "dtype, tolerance", [(torch.float64, 1e-12), (torch.float32, 1e-6)], ids=["float64", "float32"]
)
@pytest.mark.parametrize("rows", [1, 3], ids=["shared query", "query per sample"])
@pytest.mark.parametrize("residual", [False, True], ids=["paper", "released"])
def test_folding_changes_neither_value_nor_gradient(residual, rows, dtype, tolerance):
    block, embedding, tokens = block_and_tokens(residual=residual, dtype=dtype)
    embedding = (embedding + torch.arange(rows)[:, None] * 0.1).detach().requires_grad_()
    wanted = [embedding, tokens, *block.parameters()]
    direction = torch.randn(3, 12, dtype=dtype)
    folded, unfolded = block(embedding, tokens), plain(block, embedding, tokens)
    scale = unfolded.abs().max().item()
    torch.testing.assert_close(folded, unfolded, rtol=0, atol=tolerance * max(1, scale))
    gradients = [
        torch.autograd.grad((output * direction).sum(), wanted) for output in (folded, unfolded)
    ]
    for got, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(
            got, expected, rtol=0, atol=tolerance * max(1.0, expected.abs().max().item())
        )


def test_the_paper_s_block_takes_nothing_of_the_embedding_but_the_query():
    block, embedding, tokens = block_and_tokens(residual=False)
    nn.init.zeros_(block.key.weight)  # every token gets the same share, whatever the query
    assert torch.equal(
        block(embedding, tokens),
        block(embedding + 5 * torch.randn(1, 12, dtype=torch.float64), tokens),
    )


def test_drop_path_drops_both_branches_of_the_released_block_and_only_in_training():
    block, embedding, tokens = block_and_tokens(residual=True, drop_path=0.5, batch=64)
    with torch.no_grad():
        block.mlp.fc2.bias.fill_(1.0)
    torch.manual_seed(0)
    output = block.train()(embedding, tokens)
    untouched = (output == embedding).all(1)
    assert 4 <= untouched.sum() <= 32  # both dropped: one in four
    torch.testing.assert_close(
        block.eval()(embedding, tokens), plain(block, embedding, tokens), rtol=1e-12, atol=1e-12
    )


def test_an_adapted_block_is_the_block_plus_a_scaled_bottleneck_on_the_residual_stream():
    from timm.models.vision_transformer import Block

    torch.manual_seed(0)
    block = Block(12, 3, qkv_bias=True).double()
    adapted = AdaptedBlock(block, 12, 5).double().eval()
    tokens = torch.randn(2, 7, 12, dtype=torch.float64)
    assert torch.equal(adapted(tokens), block(tokens)), "the up-projection starts at 0"
    nn.init.normal_(adapted.adapter.up.weight)
    nn.init.normal_(adapted.adapter.up.bias)
    nn.init.normal_(adapted.adapter.down.bias)
    after_attention = tokens + block.attn(block.norm1(tokens))
    adapter, expected = adapted.adapter, block(tokens).clone()
    for i in range(2):
        for n in range(7):
            hidden = adapter.down.weight @ after_attention[i, n] + adapter.down.bias
            expected[i, n] += 0.1 * (adapter.up.weight @ hidden.clamp(min=0) + adapter.up.bias)
    torch.testing.assert_close(adapted(tokens), expected, rtol=1e-12, atol=1e-12)
