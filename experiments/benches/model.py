"""The TSA block against its unfolded form; a frozen prefix shared by student and teacher."""

import copy
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn

from avalanche_hfc.models import TSAViT
from avalanche_hfc.models.tsa import TSABlock
from experiments.benches.timing import Row, side_by_side


class UnfoldedTSA(TSABlock):
    """Three projections of all tokens, then scaled dot-product attention."""

    def attention(self, embeddings, tokens):
        b, _, dim = tokens.shape
        split = (self.num_heads, dim // self.num_heads)
        query = self.query(embeddings).expand(b, -1, -1).unflatten(-1, split).transpose(1, 2)
        key = self.key(tokens).unflatten(-1, split).transpose(1, 2)
        value = self.value(tokens).unflatten(-1, split).transpose(1, 2)
        pooled = F.scaled_dot_product_attention(query, key, value)
        return self.project(pooled.transpose(1, 2).flatten(2))


def rows() -> Iterator[Row]:
    yield from tsa_rows()
    yield prefix_row()


def tsa_rows() -> Iterator[Row]:
    folded = TSABlock(768, 12)
    unfolded = UnfoldedTSA(768, 12)
    unfolded.load_state_dict(folded.state_dict())
    embedding, tokens = torch.randn(1, 768), torch.randn(16, 197, 768)
    torch.testing.assert_close(folded(embedding, tokens), unfolded(embedding, tokens))

    def forward(block: nn.Module) -> None:
        with torch.no_grad():
            block(embedding, tokens)

    def with_backward(block: nn.Module) -> None:
        block(embedding, tokens.detach().requires_grad_()).sum().backward()

    for part, work, limit in (("forward", forward, 8.0), ("with backward", with_backward, 5.0)):
        times = side_by_side(
            {"ours": lambda w=work: w(folded), "plain": lambda w=work: w(unfolded)}
        )
        name = f"TSA block, b = 16, ViT-Base, {part}"
        yield Row(
            name,
            "unfolded block (three projections, SDPA)",
            1e3 * times["ours"],
            1e3 * times["plain"],
            "ms",
            f"≥ {limit:g} faster",
            limit,
            True,
        )


def prefix_row() -> Row:
    """Student with backward and teacher forward, as in a training step. Half of the blocks are
    frozen.
    """
    options = dict(embed_dim=192, num_heads=3)
    student = TSAViT(
        "vit_tiny_patch16_224",
        image_size=32,
        patch_size=4,
        msa_blocks=6,
        frozen_blocks=3,
        backbone_options=options,
    )
    student.head.grow(range(10))
    teacher = copy.deepcopy(student).eval().requires_grad_(False)
    x = torch.randn(32, 3, 32, 32)

    def step(shared: bool) -> None:
        prefix = student.prefix(x) if shared else None
        with torch.no_grad():
            teacher.classify(teacher.embed(x, prefix))
        student.classify(student.embed(x, prefix)).sum().backward()

    times = side_by_side(
        {
            "shared": lambda: step(True),
            "twice": lambda: step(False),
            "prefix": lambda: student.prefix(x),
        }
    )
    expected = times["twice"] - times["prefix"]
    return Row(
        "frozen prefix shared by teacher and student",
        "computed twice, less one prefix",
        1e3 * times["shared"],
        1e3 * expected,
        "ms",
        "1 ± 0.05",
        1.05,
        lower=0.95,
    )
