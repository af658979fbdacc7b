"""The equations of the paper and of the released code as plain loops over samples, classes and
steps, in float64 and without tensors.
"""

import math


def softmax(row, columns):
    highest = max(row[c] for c in columns)
    total = sum(math.exp(row[c] - highest) for c in columns)
    return {c: math.exp(row[c] - highest) / total for c in columns}


def sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def split(steps):
    seen = [c for c, s in enumerate(steps) if s >= 0]
    current = max(steps)
    old = [c for c in seen if steps[c] < current]
    return seen, old, [c for c in seen if steps[c] == current]


def weights(logits, targets, steps):
    """w_i of Eq. 9."""
    seen, old, _ = split(steps)
    z = len(old) / len(seen)
    sharpened = []
    for row, y in zip(logits, targets, strict=True):
        others = softmax(row, seen)
        gradient = sum(p for c, p in others.items() if c != y)  # |p_y - 1|, Eq. 6
        sharpened.append(math.log1p(gradient**z))  # of Eq. 8
    result = []
    for s, y in zip(sharpened, targets, strict=True):
        own = [
            other
            for other, label in zip(sharpened, targets, strict=True)
            if steps[label] == steps[y]
        ]
        mean = sum(own) / len(own)  # Eq. 8
        result.append(s / mean if mean > 0 else 1.0)
    return result


def forgetting_compensation(logits, targets, steps):
    """Eq. 9: (value, gradient w_i (P_i - onehot_i) / b)."""
    seen, _, _ = split(steps)
    loss, gradient = 0.0, [[0.0] * len(steps) for _ in targets]
    for i, (y, w) in enumerate(zip(targets, weights(logits, targets, steps), strict=True)):
        p = softmax(logits[i], seen)
        loss += w * -math.log(p[y]) / len(targets)
        for c in seen:
            pull = p[c] if c != y else -sum(q for other, q in p.items() if other != y)
            gradient[i][c] = w * pull / len(targets)
    return loss, gradient


def relation_target(teacher_row, y, steps, normalise):
    """Y_i over all columns."""
    _, old, new = split(steps)
    target = [0.0] * len(steps)
    if old:
        for c, p in softmax(teacher_row, old).items():
            target[c] = p
    if y in new:
        target[y] = 1.0
    total = sum(target)
    return [t / total for t in target] if normalise else target


def relation_distillation(logits, targets, teacher_logits, steps, normalise, average, w=None):
    """Eq. 10-13, KL(Ỹ ‖ P̃): (value, gradient).

    With r = Ỹ_k / P̃_k, column c of sample i of class k gets ρ_k P_ic (Σ_j r_j P_ij - r_c) / Δ_k,
    over the same divisor.
    """
    seen, old, _ = split(steps)
    loss, gradient = 0.0, [[0.0] * len(steps) for _ in targets]
    if not old:
        return loss, gradient
    w = weights(logits, targets, steps) if w is None else w
    present = sorted(set(targets))
    divisor = len(present) if average == "present" else len(seen)
    for k in present:
        members = [i for i, y in enumerate(targets) if y == k]
        p = {i: softmax(logits[i], seen) for i in members}
        prediction = {c: sum(p[i][c] for i in members) / len(members) for c in seen}
        rows = [relation_target(teacher_logits[i], k, steps, normalise) for i in members]
        target = {c: sum(row[c] for row in rows) / len(members) for c in seen}
        class_weight = sum(w[i] for i in members) / len(members)
        loss += (
            class_weight
            * sum(t * math.log(t / prediction[c]) for c, t in target.items() if t > 0)
            / divisor
        )
        ratio = {c: target[c] / prediction[c] for c in seen}
        for i in members:
            inner = sum(ratio[c] * p[i][c] for c in seen)
            for c in seen:
                gradient[i][c] = (
                    class_weight * p[i][c] * (inner - ratio[c]) / len(members) / divisor
                )
    return loss, gradient


def bce(logit, label):
    return -label * math.log(sigmoid(logit)) - (1 - label) * math.log(sigmoid(-logit))


def clip(x, low, high):
    return min(max(x, low), high)


def official_hfc(logits, targets, teacher_logits, steps):
    """The released code's loss: (value, gradient); teacher_logits None in the first step."""
    seen, old, _ = split(steps)
    b, num_seen = len(targets), len(seen)
    onehot = [[1.0 if c == y else 0.0 for c in range(len(steps))] for y in targets]
    loss, gradient = 0.0, [[0.0] * len(steps) for _ in targets]
    if teacher_logits is None:
        for i in range(b):
            for c in seen:
                loss += bce(logits[i][c], onehot[i][c]) / (b * num_seen)
                gradient[i][c] = (sigmoid(logits[i][c]) - onehot[i][c]) / (b * num_seen)
        return loss, gradient
    z = len(old) / num_seen
    mixed = [
        [sigmoid(teacher_logits[i][c]) if c in old else onehot[i][c] for c in range(len(steps))]
        for i in range(b)
    ]
    w2 = []
    for i, r in enumerate(weights(logits, targets, steps)):
        if targets[i] in old:
            first, second = math.sqrt(1 - z) * clip(r, 0.5, 1.2), z * clip(r, 0.5, 1.2)
        else:
            first, second = (1 - z) * clip(r, 0.5, 1.0), 0.8 * z
        w2.append(second)
        for c in seen:
            loss += (
                first * bce(logits[i][c], onehot[i][c]) + second * bce(logits[i][c], mixed[i][c])
            ) / (b * num_seen)
            p = sigmoid(logits[i][c])
            gradient[i][c] += (first * (p - onehot[i][c]) + second * (p - mixed[i][c])) / (
                b * num_seen
            )
    present = sorted(set(targets))
    for k in present:
        members = [i for i, y in enumerate(targets) if y == k]
        weight = sum(w2[i] for i in members) / len(members)
        for c in seen:
            logit = sum(logits[i][c] for i in members) / len(members)
            label = sum(mixed[i][c] for i in members) / len(members)
            loss += 0.5 * weight * bce(logit, label) / (len(present) * num_seen)
            for i in members:
                gradient[i][c] += (
                    0.5
                    * weight
                    * (sigmoid(logit) - label)
                    / (len(present) * num_seen * len(members))
                )
    return loss, gradient
