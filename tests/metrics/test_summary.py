import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from avalanche_hfc.metrics import (
    StepCounts,
    accuracy,
    accuracy_nme,
    average_incremental_accuracy,
    class_accuracies,
    evaluate,
    forgetting,
    forgetting_heterogeneity,
    last_accuracy,
    mean_forgetting_heterogeneity,
)


def counts_of(correct, total, gradients=None, correct_nme=None):
    """Counts with the given right answers; wrong ones go to the next class. `gradients[c]` lists
    |Γ| of class c's images.
    """
    num_columns = len(total)
    confusion = torch.diag(torch.tensor(correct))
    for c in range(num_columns):
        confusion[c, (c + 1) % num_columns] += total[c] - correct[c]
    gradients = gradients or [[0.0] * n for n in total]
    return StepCounts(
        confusion=confusion,
        correct_nme=None if correct_nme is None else torch.tensor(correct_nme),
        total=torch.tensor(total),
        gradient_sum=torch.tensor([math.fsum(own) for own in gradients], dtype=torch.float64),
        gradient_square_sum=torch.tensor(
            [math.fsum(x * x for x in own) for own in gradients], dtype=torch.float64
        ),
    )


FIRST = counts_of([9, 1], [10, 2])
SECOND = counts_of([4, 2, 3, 0], [10, 2, 4, 0], correct_nme=[5, 1, 2, 0])
THIRD = counts_of([2, 1, 4, 0, 5], [10, 2, 4, 0, 5])
STEPS = torch.tensor([0, 0, 1, 1, 2])


def test_accuracy_weighs_images_not_classes():
    assert accuracy(FIRST) == pytest.approx(10 / 12, rel=1e-15)
    assert accuracy(SECOND) == pytest.approx(9 / 16, rel=1e-15)
    assert accuracy_nme(SECOND) == pytest.approx(8 / 16, rel=1e-15)


def test_class_accuracies_have_nan_where_no_image_was():
    assert class_accuracies(SECOND).tolist() == pytest.approx(
        [0.4, 1.0, 0.75, math.nan], nan_ok=True
    )


def test_average_incremental_accuracy_is_the_mean_of_the_steps_with_the_first():
    assert average_incremental_accuracy([FIRST, SECOND, THIRD]) == pytest.approx(
        (10 / 12 + 9 / 16 + 12 / 21) / 3, rel=1e-15
    )
    assert last_accuracy([FIRST, SECOND, THIRD]) == pytest.approx(12 / 21, rel=1e-15)
    assert average_incremental_accuracy([SECOND]) == last_accuracy([SECOND]) == accuracy(SECOND)


def test_the_average_by_nearest_means_is_that_of_their_accuracies():
    means = [counts_of([9, 1], [10, 2], correct_nme=[6, 2]), SECOND]
    assert average_incremental_accuracy(means, nme=True) == pytest.approx(
        (8 / 12 + 8 / 16) / 2, rel=1e-15
    )
    with pytest.raises(ValueError, match="had no class means"):
        average_incremental_accuracy([FIRST, SECOND], nme=True)


def test_forgetting_is_the_best_earlier_less_the_last_over_classes_of_earlier_steps():
    # class 0: .9, .4, then .2; class 1: .5, 1, then .5; class 2: .75, then 1 (a gain); class 3 has
    # no image; class 4 is new
    assert forgetting([FIRST, SECOND, THIRD], STEPS) == pytest.approx(
        (0.7 + 0.5 - 0.25) / 3, rel=1e-12
    )
    assert forgetting([FIRST, SECOND], STEPS[:4]) == pytest.approx((0.5 - 0.5) / 2, abs=1e-15)


def test_a_class_of_the_current_step_is_not_forgotten_however_often_it_was_evaluated():
    assert forgetting([FIRST, counts_of([0, 0], [10, 2])], torch.tensor([0, 1])) == pytest.approx(
        0.9
    )


def test_nothing_can_be_forgotten_in_the_first_step():
    assert math.isnan(forgetting([FIRST], torch.tensor([0, 0])))
    assert math.isnan(forgetting([FIRST, FIRST], torch.tensor([0, 0])))


def test_golden_fh_of_one_step():
    logits = torch.tensor(
        [
            [2, 0.5, 0, 1, -1, 0],
            [0, 1.5, 0.5, 0, 2, 0],
            [-0.5, 3, 0, 0, 0.5, 0.5],
            [0, 0, 1, 0, 1, 0],
            [0.5, 0, -1, 0, 2.5, 0],
            [1, 0, 0, 0, 0, 0.5],
        ],
        dtype=torch.float64,
    )
    steps = torch.tensor([0, 0, 1, 1, 2, 2])
    data = torch.utils.data.TensorDataset(logits, torch.tensor([0, 1, 1, 2, 4, 4]))
    for batch_size in (1, 2, 6):  # sums over the whole set: batches must not matter
        counts = evaluate(torch.nn.Identity(), data, steps, batch_size=batch_size)
        assert forgetting_heterogeneity(counts, steps) == pytest.approx(0.049852, abs=5e-7)


@st.composite
def evaluations(draw):
    steps = draw(st.lists(st.integers(0, 3), min_size=1, max_size=6))
    gradients = [draw(st.lists(st.floats(0, 1), max_size=5)) for _ in steps]
    gradients[0].append(0.25)
    return gradients, steps


@settings(max_examples=60, deadline=None)
@given(evaluations())
def test_fh_is_the_pooled_variance_within_steps(drawn):
    gradients, steps = drawn
    total = [len(own) for own in gradients]
    images = [(x, steps[c]) for c, own in enumerate(gradients) for x in own]
    expected = 0.0
    for x, step in images:
        own_step = [other for other, its_step in images if its_step == step]
        expected += (x - math.fsum(own_step) / len(own_step)) ** 2
    value = forgetting_heterogeneity(
        counts_of([0] * len(total), total, gradients), torch.tensor(steps)
    )
    assert value == pytest.approx(expected / len(images), rel=1e-9, abs=1e-15)
    assert 0 <= value <= 0.25 + 1e-12


def test_fh_of_equal_gradients_is_0_and_never_below():
    for n in range(1, 40):  # Σx² - (Σx)²/n rounds below 0 for many of these
        assert (
            0
            <= forgetting_heterogeneity(counts_of([0], [n], [[0.1] * n]), torch.tensor([0]))
            < 1e-15
        )
    assert any(math.fsum([0.1 * 0.1] * n) - math.fsum([0.1] * n) ** 2 / n < 0 for n in range(1, 40))


def test_fh_does_not_see_differences_between_steps():
    gradients = [[0.0, 0.0], [1.0, 1.0, 1.0]]
    assert forgetting_heterogeneity(counts_of([0, 0], [2, 3], gradients), torch.tensor([0, 1])) == 0
    assert forgetting_heterogeneity(
        counts_of([0, 0], [2, 3], gradients), torch.tensor([4, 4])
    ) == pytest.approx(0.24)


def test_the_table_s_fh_is_the_mean_of_the_steps():
    one = counts_of([0, 0], [2, 0], [[0.0, 1.0], []])
    two = counts_of([0, 0, 0], [2, 1, 1], [[0.5, 0.5], [0.0], [1.0]])
    steps = torch.tensor([0, 0, 1])
    assert forgetting_heterogeneity(one, steps[:2]) == 0.25
    assert forgetting_heterogeneity(two, steps) == pytest.approx((1 / 6) / 4)
    assert mean_forgetting_heterogeneity([one, two], steps) == pytest.approx((0.25 + 1 / 24) / 2)


def test_empty_input_is_refused():
    empty = counts_of([0, 0], [0, 0])
    for function in (average_incremental_accuracy, last_accuracy):
        with pytest.raises(ValueError, match="list of counts is empty"):
            function([])
    for function in (forgetting, mean_forgetting_heterogeneity):
        with pytest.raises(ValueError, match="list of counts is empty"):
            function([], STEPS)
    for attempt in (lambda: accuracy(empty), lambda: forgetting_heterogeneity(empty, STEPS[:2])):
        with pytest.raises(ValueError, match="The counts hold no image"):
            attempt()
    with pytest.raises(ValueError, match="had no class means"):
        accuracy_nme(FIRST)


def test_steps_that_do_not_fit_the_counts_are_named():
    with pytest.raises(ValueError, match="steps names 4 classes, the counts 5"):
        forgetting([SECOND, THIRD], STEPS[:4])
    with pytest.raises(ValueError, match=r"Classes \[1\] have images in the counts but no step"):
        forgetting_heterogeneity(FIRST, torch.tensor([0, -1]))
    with pytest.raises(ValueError, match=r"Classes \[0, 2\] have images in the counts but no step"):
        forgetting_heterogeneity(
            counts_of([1, 1, 0], [1, 1, 1]), torch.tensor([-1, 0, -1])
        )  # one image is enough


def test_forgetting_by_nearest_means_counts_their_right_answers():
    def counts(head, nearest):
        return StepCounts(
            torch.diag(torch.tensor(head)),
            torch.tensor(nearest),
            torch.tensor([10, 10]),
            torch.zeros(2),
            torch.zeros(2),
        )

    met, steps = [counts([9, 0], [4, 0]), counts([2, 7], [3, 5])], torch.tensor([0, 1])
    assert forgetting(met, steps) == pytest.approx(0.7) and forgetting(
        met, steps, nme=True
    ) == pytest.approx(0.1)
