"""What every backbone and every growing head promises inside Avalanche."""

import copy

import pytest
import torch
from avalanche.benchmarks import nc_benchmark
from avalanche.benchmarks.utils import as_classification_dataset
from avalanche.models.dynamic_modules import avalanche_model_adaptation
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.supervised import Naive
from small_backbones import encoder, vit, vit_encoder
from small_vits import images, small
from torch.utils.data import TensorDataset

from avalanche_hfc.models import CosineHead, DyToxModel, ResNet18, ResNet32


def with_cosine_head(model):
    model.head = CosineHead(model.embed_dim, num_proxies=2)
    return model


BUILD = {
    "tsavit": small,
    "vit": vit,
    "resnet32": ResNet32,
    "resnet18": lambda: ResNet18(stem="3x3"),
    "dytox": lambda: DyToxModel(encoder(drop_path=0.0)),
    "dytox on a vit": lambda: DyToxModel(vit_encoder()),
    "resnet32 with proxies": lambda: with_cosine_head(ResNet32(last_relu=False, block_relu=False)),
    "vit with proxies": lambda: with_cosine_head(vit()),
}
every = pytest.mark.parametrize("name", BUILD)
ORDER = [4, 1, 5, 0, 3, 2]


def built(name):
    torch.manual_seed(0)
    return BUILD[name]()


def benchmark(order=ORDER):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(6).repeat(4)
    dataset = TensorDataset(
        torch.randn(24, 3, 8, 8, generator=generator) + labels[:, None, None, None], labels
    )
    dataset.targets = labels.tolist()
    data = as_classification_dataset(dataset)
    return nc_benchmark(data, data, n_experiences=3, task_labels=False, fixed_class_order=order)


def held(optimizer):
    return {id(p) for group in optimizer.param_groups for p in group["params"]}


@every
def test_avalanche_trains_what_is_not_frozen_in_every_step_and_its_evaluation_changes_nothing(name):
    def run(evaluate):
        model = built(name)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        strategy = Naive(
            model=model, optimizer=optimizer, train_mb_size=8, evaluator=EvaluationPlugin()
        )
        stream = benchmark()
        for step, experience in enumerate(stream.train_stream[:2]):
            old = {key: p.detach().clone() for key, p in model.named_parameters()}
            torch.manual_seed(step)
            strategy.train(experience)
            assert all(id(p) in held(optimizer) for p in model.parameters())
            now = {
                key: p
                for key, p in model.named_parameters()
                if key in old and p.shape == old[key].shape and p.numel()
            }
            still = {key for key, p in now.items() if torch.equal(p, old[key])}
            assert still <= {
                key for key, p in now.items() if not p.requires_grad or "divergence" in key
            }
            assert model.head.seen.nonzero().flatten().tolist() == [[1, 4], [0, 1, 4, 5]][step]
            if evaluate:
                strategy.eval(stream.test_stream)  # classes of the last step are never trained
        return model

    with_evaluation, without = run(True), run(False)
    for (key, a), (_, b) in zip(
        with_evaluation.state_dict().items(), without.state_dict().items(), strict=True
    ):
        assert torch.equal(a, b), key


def adapted(name, steps=((4, 1), (5, 0)), dtype=torch.float32):
    model = built(name).to(dtype)
    for class_ids in steps:
        avalanche_model_adaptation(
            model, type("Experience", (), {"classes_in_this_experience": list(class_ids)})()
        )
    return model.eval()


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_forward_is_classify_of_embed_and_features_hold_the_same_embedding(name, dtype):
    model, x = adapted(name, dtype=dtype), images(dtype=dtype)
    features = model.features(x)
    assert features.embedding.shape == (3, model.embed_dim) and features.embedding.dtype == dtype
    assert torch.equal(features.embedding, model.embed(x)) and torch.equal(
        model.get_features(x), model.embed(x)
    )
    assert (
        torch.equal(model(x), model.classify(model.embed(x)))
        and model(x).dtype == dtype
        and model(x).shape == (3, 6)
    )
    assert (model(x)[:, [2, 3]] == -1000).all() and (model(x)[:, [0, 1, 4, 5]] > -900).all()
    assert len(features.stages) == 4 and (features.tokens is None) == name.startswith("resnet")


@every
def test_a_copy_and_a_model_of_its_state_give_the_same_bits_and_do_not_grow_along(name):
    model = adapted(name)
    twin, fresh = copy.deepcopy(model), built(name)
    fresh.load_state_dict(model.state_dict())
    logits = model(images())
    assert torch.equal(twin(images()), logits) and torch.equal(fresh.eval()(images()), logits)
    model.train()
    model.head.grow([8])
    assert twin(images()).shape == (3, 6) and model.eval()(images()).shape == (3, 9)
    torch.testing.assert_close(model(images())[:, :6], logits, rtol=1e-5, atol=1e-6)


@every
def test_class_ids_permuted_with_their_rows_permute_the_logits(name):
    """With ids that keep their order in each step the same rows are drawn, under other columns."""
    first, second = adapted(name, ((1, 4), (0, 5))), adapted(name, ((2, 3), (1, 7)))
    torch.testing.assert_close(
        second(images())[:, [2, 3, 1, 7]], first(images())[:, [1, 4, 0, 5]], rtol=1e-6, atol=1e-6
    )
    assert (second(images())[:, [0, 4, 5, 6]] == -1000).all()
