import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import TensorDataset

from avalanche_hfc.metrics import evaluate

STEPS = torch.tensor(
    [1, -1, 0, 0, -1, 1]
)  # classes 0, 2, 3, 5 seen; class ids in no order of arrival


class Net(nn.Module):
    """Embedding of 3, head of 6 columns; dropout and batch norm show whether eval mode is on."""

    def __init__(self, columns=6):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.body = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))
            self.head = nn.Linear(3, columns)

    def embed(self, images):
        return self.body(images)

    def classify(self, embedding):
        return self.head(embedding)

    def forward(self, images):
        return self.classify(self.embed(images))


class Given(nn.Module):
    """The images are the logits."""

    def forward(self, images):
        return images


def images_and_labels(n=57, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 4, generator=generator), torch.tensor([0, 2, 3, 5])[
        torch.randint(0, 4, (n,), generator=generator)
    ]


def loop(logits, targets, steps):
    """Per image, from the definition: confusion, total, Σ|Γ|, Σ|Γ|², softmax and argmax over seen
    columns.
    """
    num_columns = len(steps)
    confusion = [[0] * num_columns for _ in range(num_columns)]
    total, sums, squares = [0] * num_columns, [0.0] * num_columns, [0.0] * num_columns
    seen = [c for c in range(num_columns) if steps[c] >= 0]
    for row, y in zip(logits.tolist(), targets.tolist(), strict=True):
        gradient = 1 - math.exp(row[y]) / sum(math.exp(row[c]) for c in seen)
        confusion[y][max(seen, key=lambda c: row[c])] += 1
        total[y] += 1
        sums[y] += gradient
        squares[y] += gradient**2
    return confusion, total, sums, squares


def check(counts, logits, targets, steps, rel=1e-12):
    confusion, total, sums, squares = loop(logits, targets, steps)
    assert counts.confusion.tolist() == confusion
    assert counts.correct.tolist() == [confusion[c][c] for c in range(len(steps))]
    assert counts.total.tolist() == total
    assert counts.gradient_sum.tolist() == pytest.approx(sums, rel=rel)
    assert counts.gradient_square_sum.tolist() == pytest.approx(squares, rel=rel)
    assert counts.confusion.dtype == counts.total.dtype == torch.int64
    assert counts.gradient_sum.dtype == counts.gradient_square_sum.dtype == torch.float64


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 30),
    st.integers(1, 31),
    st.integers(0, 10**6),
    st.lists(st.integers(-1, 3), min_size=1, max_size=7),
)
def test_counts_are_those_of_a_loop_over_images(n, batch_size, seed, steps):
    steps = torch.tensor([*steps, 0])
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(n, len(steps), generator=generator, dtype=torch.float64)
    seen = (steps >= 0).nonzero()[:, 0]
    targets = seen[torch.randint(0, len(seen), (n,), generator=generator)]
    counts = evaluate(Given(), TensorDataset(logits, targets), steps, batch_size=batch_size)
    check(counts, logits, targets, steps, rel=1e-9)
    assert counts.correct_nme is None


def test_the_nearest_mean_is_that_of_a_loop_over_images():
    images, targets = images_and_labels()
    net = Net().double().eval()
    one = {k: images[targets == k][:1].double() for k in (5, 0, 3)}  # class 2 has no mean
    means = {
        k: scale * net.embed(image)[0].detach()
        for (k, image), scale in zip(one.items(), (30, 1, 0.01), strict=True)
    }
    counts = evaluate(
        net, TensorDataset(images.double(), targets), STEPS, class_means=means, batch_size=10
    )
    with torch.no_grad():
        embeddings = net.embed(images.double())
        check(counts, net.classify(embeddings), targets, STEPS)
    expected = [0] * 6
    for embedding, y in zip(embeddings, targets.tolist(), strict=True):
        distance = {
            k: ((embedding / embedding.norm() - mean / mean.norm()) ** 2).sum().item()
            for k, mean in means.items()
        }
        expected[y] += min(distance, key=distance.get) == y
    assert counts.correct_nme.tolist() == expected
    assert (
        counts.correct_nme.dtype == torch.int64
        and min(expected[0], expected[3], expected[5]) > 0
        and expected[2] == 0
    )


def test_the_nearest_mean_is_found_in_full_precision_under_autocast():
    images = torch.tensor(
        [[1.0, 1.0, 0.0], [1.0, 1.002, 0.0]]
    )  # bfloat16 sees no difference between 1 and 1.002
    net = Net()
    net.body = nn.Identity()
    with torch.autocast("cpu", torch.bfloat16):
        means = {0: images[0], 2: images[1]}
        counts = evaluate(
            net, TensorDataset(images, torch.tensor([0, 2])), STEPS, class_means=means
        )
    assert counts.correct_nme.tolist() == [1, 0, 1, 0, 0, 0]


def test_unseen_columns_do_not_compete_whatever_their_logits():
    targets = images_and_labels()[1]
    logits = torch.randn(
        len(targets), 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64
    )
    plain = evaluate(Given(), TensorDataset(logits, targets), STEPS)
    for value in (1e9, float("inf"), float("nan"), -1000.0):
        loud = logits.clone()
        loud[:, STEPS < 0] = value
        counts = evaluate(Given(), TensorDataset(loud, targets), STEPS)
        assert torch.equal(counts.confusion, plain.confusion)
        assert torch.equal(counts.gradient_sum, plain.gradient_sum)


def test_seen_columns_at_minus_1000_still_compete():
    logits = torch.full((3, 6), -1000.0, dtype=torch.float64)
    counts = evaluate(Given(), TensorDataset(logits, torch.tensor([0, 2, 3])), STEPS)
    assert counts.gradient_sum.tolist() == pytest.approx([0.75, 0, 0.75, 0.75, 0, 0])


def test_a_head_may_be_wider_than_the_classes_or_narrower_while_those_columns_are_unseen():
    logits = torch.randn(20, 9, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    targets = torch.tensor([0, 2, 3, 5]).repeat(5)
    wide = evaluate(Given(), TensorDataset(logits, targets), STEPS)
    check(wide, logits, targets, STEPS)
    longer = torch.cat([STEPS, torch.tensor([-1, -1])])
    narrow = evaluate(Given(), TensorDataset(logits[:, :6], targets), longer)
    assert torch.equal(narrow.confusion[:6, :6], wide.confusion) and narrow.confusion.shape == (
        8,
        8,
    )
    with pytest.raises(ValueError, match="gives 5 columns, but class 5 has been seen"):
        evaluate(Given(), TensorDataset(logits[:, :5], targets), STEPS)


def test_modes_random_state_and_statistics_are_left_alone_also_after_an_error():
    images, targets = images_and_labels()
    net = Net().train()
    net.body[1].eval()  # a part frozen by the user stays so

    class Random(TensorDataset):
        def __getitem__(self, index):
            image, label = super().__getitem__(index)
            return image + 0 * torch.rand(1), label

    class Breaking(TensorDataset):
        def __getitem__(self, index):
            torch.rand(1)
            raise OSError("unreadable")

    before = [module.training for module in net.modules()]
    state, tensors = (
        torch.get_rng_state(),
        {name: value.clone() for name, value in net.state_dict().items()},
    )
    evaluate(net, Random(images, targets), STEPS)
    with pytest.raises(OSError, match="unreadable"):
        evaluate(net, Breaking(images, targets), STEPS)
    assert [module.training for module in net.modules()] == before and before.count(True) == len(
        before
    ) - 1
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, tensors[name]) for name, value in net.state_dict().items())
    with torch.no_grad():
        check(
            evaluate(net, TensorDataset(images, targets), STEPS),
            net.eval()(images).double(),
            targets,
            STEPS,
            rel=1e-5,
        )


@pytest.mark.parametrize("labels", [[0, 1, 4, 1], [0, 6], [0, -1], [7, -2]])
def test_labels_of_classes_not_seen_are_named(labels):
    unseen = sorted(set(labels) - {0, 2, 3, 5})
    with pytest.raises(
        ValueError,
        match=r"classes not seen yet: " + str(unseen).replace("[", r"\[").replace("]", r"\]"),
    ):
        evaluate(Given(), TensorDataset(torch.zeros(len(labels), 6), torch.tensor(labels)), STEPS)


def test_what_cannot_be_evaluated_is_refused_before_the_pass():
    data = TensorDataset(*images_and_labels())
    with pytest.raises(ValueError, match="the data set is empty"):
        evaluate(
            Given(), TensorDataset(torch.zeros(0, 6), torch.zeros(0, dtype=torch.int64)), STEPS
        )
    with pytest.raises(ValueError, match="all 3 entries of steps are below 0"):
        evaluate(Given(), data, torch.full((3,), -1))
    with pytest.raises(ValueError, match=r"given 3, not seen \[1, 8\]"):
        evaluate(
            Net(), data, STEPS, class_means={class_id: torch.ones(3) for class_id in (0, 8, 1)}
        )
    with pytest.raises(ValueError, match=r"given 0, not seen \[\]"):
        evaluate(Net(), data, STEPS, class_means={})


def test_images_whose_largest_seen_logit_is_not_finite_are_counted_over_all_batches():
    nan, inf = math.nan, math.inf
    fine = [
        [-inf, 0.0, 1.0, 2.0, 0.0, 3.0],  # probability 0 for class 0
        [1.0, nan, 0.0, 2.0, inf, 3.0],  # classes 1 and 4 are not seen yet
        [1.0, 0.0, 2.0, 0.0, 0.0, 0.0],
    ]
    broken = [[nan, 0.0, nan, 0.0, 0.0, 0.0], [inf, 0.0, inf, inf, 0.0, inf]]
    labels = torch.tensor([3, 3, 2, 0, 0])
    clean = TensorDataset(torch.tensor(fine), labels[:3])
    assert evaluate(Given(), clean, STEPS, batch_size=2).total.sum() == 3
    dataset = TensorDataset(torch.tensor([*fine, *broken]), labels)
    for batch_size in (1, 3, 5):
        with pytest.raises(FloatingPointError, match=r"the logits of 2 of 5 images are not finite"):
            evaluate(Given(), dataset, STEPS, batch_size=batch_size)
