import copy
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from avalanche_hfc.models import BiasLayer


def logits(dtype=torch.float64):
    return torch.tensor([[2.0, 1.0, 0.5, -1.0], [0.0, 3.0, -1000.0, 1.0]], dtype=dtype)


def layer_on(class_ids, alpha=0.5, beta=-0.5):
    layer = BiasLayer().double()
    layer.start(class_ids)
    layer.alpha.data.fill_(alpha)
    layer.beta.data.fill_(beta)
    return layer


def test_the_pair_acts_on_the_columns_of_the_newest_classes_only():
    assert layer_on([3, 1])(logits()).tolist() == [[2.0, 0.0, 0.5, -1.0], [0.0, 1.0, -1000.0, 0.0]]


def test_the_distillation_with_the_pair_on_column_1_gives_bic_s_known_answer():
    teacher = layer_on([1])(torch.tensor([[0.0, 1.0]], dtype=torch.float64))
    student = logits()[:1]
    distillation = -(F.softmax(teacher / 2, dim=1) * F.log_softmax(student[:, :2] / 2, dim=1)).sum()
    for target, known in ((2, 1.35963), (0, 0.60963)):
        cross_entropy = F.cross_entropy(student, torch.tensor([target]))
        assert (0.5 * distillation + 0.5 * cross_entropy).item() == pytest.approx(known, abs=5e-6)


def test_a_fresh_pair_changes_no_bit_and_does_not_train():
    layer = BiasLayer()
    assert torch.equal(layer(logits(torch.float32)), logits(torch.float32))
    layer.start([0, 2])
    assert torch.equal(layer(logits(torch.float32)), logits(torch.float32))
    assert not layer.alpha.requires_grad and not layer.beta.requires_grad


def test_another_step_starts_a_new_pair_in_the_same_parameters_and_only_in_training():
    layer = layer_on([1, 3]).requires_grad_()
    parameters = (layer.alpha, layer.beta)
    layer.adaptation(SimpleNamespace(classes_in_this_experience=[3, 1]))
    layer.eval().adaptation(SimpleNamespace(classes_in_this_experience=[2]))
    assert (layer.alpha.item(), layer.beta.item(), layer.class_ids.tolist()) == (0.5, -0.5, [1, 3])
    layer.train().adaptation(SimpleNamespace(classes_in_this_experience=[2]))
    assert (layer.alpha.item(), layer.beta.item(), layer.class_ids.tolist()) == (1, 0, [2])
    assert (
        layer.alpha is parameters[0]
        and layer.beta is parameters[1]
        and not layer.alpha.requires_grad
    )


def test_state_dict_and_copy_carry_the_pair_and_its_columns():
    source = layer_on([1, 3])
    target = BiasLayer().double()
    target.load_state_dict(source.state_dict())
    twin = copy.deepcopy(source)
    assert torch.equal(target(logits()), source(logits())) and torch.equal(
        twin(logits()), source(logits())
    )
    target.adaptation(SimpleNamespace(classes_in_this_experience=[1, 3]))
    assert target.alpha == 0.5
