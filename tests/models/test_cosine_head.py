import copy
import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from avalanche_hfc.models import CosineHead, proxy_centres
from avalanche_hfc.models.cosine import k_means


def grown(*steps, dtype=torch.float64, **options):
    torch.manual_seed(0)
    head = CosineHead(6, num_proxies=3, **options).to(dtype)
    for class_ids in steps or ([3, 7], [0, 5]):
        head.grow(class_ids)
    return head


def inputs(dtype=torch.float64):
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(1), dtype=dtype)


def proxies_of(head):
    rows = torch.cat([head.old_proxies, head.new_proxies]).detach()
    return {class_id: rows[row] for row, class_id in enumerate(head.class_ids().tolist())}


def test_two_proxies_with_cosines_0_9_and_0_5_give_the_known_answer():
    head = CosineHead(2, num_proxies=2).double()
    head.grow([0])
    angles = torch.tensor([math.acos(0.9), -math.acos(0.5)], dtype=torch.float64)
    head.imprint({0: 4 * torch.stack([angles.cos(), angles.sin()], dim=1)})
    assert head(torch.tensor([[7.0, 0.0]], dtype=torch.float64)).item() == pytest.approx(
        -0.44802, abs=5e-6
    )


@pytest.mark.parametrize("sharpness, scale", [(1, 1.0), (9, 1.0), (1.5, 2.5)])
def test_logits_are_the_lsc_sums_written_as_loops(sharpness, scale):
    head, x = grown(sharpness=sharpness), inputs()
    head.scale.data.fill_(scale)
    logits, proxies = head(x), proxies_of(head)
    assert logits.shape == (4, 8)
    for sample in range(4):
        for column in range(8):
            if column not in proxies:
                assert logits[sample, column] == -1000
                continue
            closeness = []
            for proxy in proxies[column]:
                cosine = float(x[sample] @ proxy) / math.sqrt(
                    float(x[sample] @ x[sample]) * float(proxy @ proxy)
                )
                closeness.append(sharpness * (2 * cosine - 2))
            total = sum(math.exp(s) for s in closeness)
            expected = scale * sum(math.exp(s) / total * s for s in closeness)
            assert logits[sample, column].item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_old_proxies_keep_their_bits_and_dtype_through_growth(dtype):
    head = grown([3, 7], dtype=dtype)
    before, own = proxies_of(head), head(inputs(dtype))
    head.grow([5, 9])
    after = proxies_of(head)
    assert all(torch.equal(after[class_id], before[class_id]) for class_id in (3, 7)) and list(
        after
    ) == [3, 7, 5, 9]
    assert (
        torch.equal(head(inputs(dtype))[:, [3, 7]], own[:, [3, 7]])
        and head(inputs(dtype)).dtype == dtype
    )
    kept = (head.old_proxies, head.new_proxies)
    head.grow([9, 3])
    assert head.old_proxies is kept[0] and head.new_proxies is kept[1], (
        "classes that come back change nothing"
    )


def trained(head):
    """The names that move in a step of SGD with decay."""
    before = {name: p.detach().clone() for name, p in head.named_parameters()}
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        F.cross_entropy(head(inputs()), torch.tensor([0, 3, 5, 7])).backward()
        optimizer.step()
    return {name for name, p in head.named_parameters() if not torch.equal(p, before[name])}


def test_old_proxies_rest_while_new_ones_and_the_scale_train_and_tuning_trains_all_proxies():
    head = grown()
    assert trained(head) == {"new_proxies", "scale"}
    head.set_phase("tune")
    assert trained(head) == {"old_proxies", "new_proxies"}
    head.grow([9])
    assert trained(head) == {"new_proxies", "scale"}
    assert trained(grown(learn_scale=False)) == {"new_proxies"}


def test_unseen_columns_are_minus_1000_after_scaling_and_seen_names_the_others():
    head = grown()
    head.scale.data.fill_(3.0)
    assert head.seen.nonzero().flatten().tolist() == [0, 3, 5, 7]
    assert (head(inputs())[:, ~head.seen] == -1000).all() and (
        head(inputs())[:, head.seen] > -12.1
    ).all()


def test_evaluation_pads_and_growth_waits_for_training():
    head, state = grown(), torch.random.get_rng_state()
    head.eval()
    head.adaptation(SimpleNamespace(classes_in_this_experience=[12]))
    assert torch.equal(torch.random.get_rng_state(), state) and head.out_features == 8
    assert head(inputs()).shape == (4, 13) and (head(inputs())[:, 8:] == -1000).all()
    assert head.eval()(inputs()).shape == (4, 13), "the evaluation is still going on"
    twin = copy.deepcopy(head)
    twin.training = True  # the mode set without a call, as some hosts do
    assert twin(inputs()).shape == (4, 8) and twin.eval()(inputs()).shape == (4, 8)
    assert head.train()(inputs()).shape == (4, 8)
    head.adaptation(SimpleNamespace(classes_in_this_experience=[12]))
    assert head(inputs()).shape == (4, 13) and head.new_ids.tolist() == [12]


def test_a_state_dict_of_other_sizes_and_a_copy_give_the_same_logits():
    source = grown()
    for target in (CosineHead(6, num_proxies=3).double(), grown([1], [2, 3], range(4, 9))):
        target.load_state_dict(source.state_dict())
        assert torch.equal(target(inputs()), source(inputs()))
        target.grow([5, 6])
        assert target.new_ids.tolist() == [6]
    twin = copy.deepcopy(source)
    source.grow([20])
    assert twin(inputs()).shape == (4, 8) and torch.equal(twin(inputs()), source(inputs())[:, :8])


def test_imprinted_centres_take_the_old_proxies_mean_norm():
    head = grown([3, 7], [0, 5])
    centres = {class_id: torch.randn(3, 6, dtype=torch.float64) for class_id in (0, 5)}
    norm = (
        sum(math.sqrt(float(p @ p)) for class_id in (3, 7) for p in proxies_of(head)[class_id]) / 6
    )
    old = head.old_proxies.detach().clone()
    head.imprint(centres)
    for class_id in (0, 5):
        torch.testing.assert_close(
            proxies_of(head)[class_id], centres[class_id] * norm, rtol=1e-12, atol=0
        )
    assert torch.equal(head.old_proxies, old)


def seeded(number=0):
    return torch.Generator().manual_seed(number)


def test_centres_are_the_means_of_well_parted_groups_of_unit_features():
    axes = torch.eye(4, dtype=torch.float64)
    features, labels = [], []
    for class_id, groups in ((8, (0, 1, 2)), (2, (1, 2, 3))):
        for group in groups:
            features.append(
                (
                    axes[group]
                    + 0.02 * torch.randn(20, 4, generator=seeded(group), dtype=torch.float64)
                )
                * 5
            )
            labels += [class_id] * 20
    units = [F.normalize(part, dim=1) for part in features]
    centres = proxy_centres(
        torch.cat(features), torch.tensor(labels), num_proxies=3, generator=seeded()
    )
    assert list(centres) == [2, 8]
    for class_id, own in ((8, units[:3]), (2, units[3:])):
        expected = sorted(part.mean(0).tolist() for part in own)
        assert sorted(centres[class_id].tolist()) == [
            pytest.approx(row, abs=1e-12) for row in expected
        ]


def test_k_means_ends_where_no_round_changes_anything_and_below_every_single_start():
    points = torch.randn(60, 3, generator=seeded(), dtype=torch.float64)
    best = k_means(points, 5, generator=seeded(1))
    nearest = torch.cdist(points, best).argmin(1)
    torch.testing.assert_close(
        best, torch.stack([points[nearest == centre].mean(0) for centre in range(5)])
    )
    cost = torch.cdist(points, best).amin(1).square().sum()
    first = k_means(points, 5, generator=seeded(1), num_starts=1)
    several = [k_means(points, 5, generator=seeded(start), num_starts=1) for start in range(6)]
    costs = [torch.cdist(points, centres).amin(1).square().sum() for centres in (first, *several)]
    assert cost <= costs[0] and cost < sum(costs) / len(costs)


def test_a_class_with_fewer_images_than_proxies_repeats_its_unit_features():
    features = torch.tensor([[3.0, 0.0], [0.0, 2.0], [0.0, 4.0]])
    centres = proxy_centres(features, torch.tensor([1, 1, 1]), num_proxies=5, generator=seeded())
    assert (
        centres[1].tolist() == [[0, 1], [1, 0], [0, 1], [1, 0], [0, 1]]
        and centres[1].dtype == torch.float32
    )


def test_the_generator_alone_decides_the_centres():
    features, labels = torch.randn(80, 4, generator=seeded()), torch.arange(80) % 2
    first = proxy_centres(features, labels, num_proxies=4, generator=seeded(5))
    torch.manual_seed(99)
    again = proxy_centres(features, labels, num_proxies=4, generator=seeded(5))
    other = proxy_centres(features, labels, num_proxies=4, generator=seeded(6))
    assert (
        torch.equal(first[0], again[0])
        and torch.equal(first[1], again[1])
        and not torch.equal(first[0], other[0])
    )


@pytest.mark.parametrize("wrong", [{"num_proxies": 0}, {"sharpness": 0.0}], ids=str)
def test_numbers_that_are_not_positive_are_refused(wrong):
    with pytest.raises(ValueError, match="num_proxies must be at least 1 and sharpness above 0"):
        CosineHead(4, **wrong)
