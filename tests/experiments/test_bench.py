"""What the bench compares with computes the same."""

from pathlib import Path

import torch

from avalanche_hfc.models.tsa import TSABlock


def test_the_unfolded_block_gives_what_the_block_gives(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    from experiments.benches.model import UnfoldedTSA

    torch.manual_seed(0)
    folded, unfolded = TSABlock(32, 4), UnfoldedTSA(32, 4)
    unfolded.load_state_dict(folded.state_dict())
    embedding, tokens = torch.randn(1, 32), torch.randn(3, 5, 32)
    torch.testing.assert_close(unfolded(embedding, tokens), folded(embedding, tokens))
