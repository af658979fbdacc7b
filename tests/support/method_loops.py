"""The losses of the compared methods as plain loops, written from their definitions, in float64 and
without tensors.
"""

import math

from loops import bce, sigmoid, softmax, split


def blocks(steps):
    """The columns of each step, in order."""
    return [
        [c for c, s in enumerate(steps) if s == step]
        for step in sorted({s for s in steps if s >= 0})
    ]


def weights_of(gradients, targets, steps):
    """w_i of Eq. 9 from any |Γ|."""
    seen, old, _ = split(steps)
    sharpened = [math.log1p(g ** (len(old) / len(seen))) for g in gradients]
    result = []
    for s, y in zip(sharpened, targets, strict=True):
        own = [
            other
            for other, label in zip(sharpened, targets, strict=True)
            if steps[label] == steps[y]
        ]
        result.append(s / (sum(own) / len(own)) if any(own) else 1.0)
    return result


def cross_entropy(row, y, columns):
    highest = max(row[c] for c in columns)
    return highest + math.log(sum(math.exp(row[c] - highest) for c in columns)) - row[y]


def kl(q, p):
    return sum(q[c] * math.log(q[c] / p[c]) for c in q if q[c] > 0)


def scaled(row, divisor):
    return [v / divisor for v in row]


def knowledge_distillation(logits, teacher, steps, temperature):
    _, old, _ = split(steps)
    total = 0.0
    for row, known in zip(logits, teacher, strict=True):
        if old:
            q, p = softmax(scaled(known, temperature), old), softmax(scaled(row, temperature), old)
            total -= sum(q[c] * math.log(p[c]) for c in old) / len(logits)
    return total


def divergence_per_column(logits, teacher, steps, temperature):
    _, old, _ = split(steps)
    total = 0.0
    for row, known in zip(logits, teacher, strict=True):
        if old:
            pair = softmax(scaled(known, temperature), old), softmax(scaled(row, temperature), old)
            total += temperature**2 * kl(*pair) / (len(logits) * len(old))
    return total


def mixed_targets(targets, teacher, steps):
    _, old, new = split(steps)
    rows = zip(targets, teacher, strict=True)
    return [
        [sigmoid(known[c]) if c in old else float(c == y and c in new) for c in range(len(steps))]
        for y, known in rows
    ]


def binary_cross_entropy(row, labels, columns):
    return sum(bce(row[c], labels[c]) for c in columns) / len(columns)


def separated_cross_entropy(logits, targets, steps):
    _, old, new = split(steps)
    return [
        cross_entropy(row, y, old if y in old else new)
        for row, y in zip(logits, targets, strict=True)
    ]


def separated_gradient(logits, targets, steps):
    _, old, new = split(steps)
    found = []
    for row, y in zip(logits, targets, strict=True):
        p = softmax(row, old if y in old else new)
        found.append(sum(v for c, v in p.items() if c != y))
    return found


def separated_distillation(logits, teacher, steps, temperature):
    total = 0.0
    for block in blocks(steps)[:-1]:
        for row, known in zip(logits, teacher, strict=True):
            pair = (
                softmax(scaled(known, temperature), block),
                softmax(scaled(row, temperature), block),
            )
            total += temperature**2 * kl(*pair) / len(logits)
    return total


def mean_of(rows, columns):
    return {c: sum(row[c] for row in rows) / len(rows) for c in columns}


def over_classes(value_of, targets, steps, w, average):
    """Mean over classes of (mean weight) · value_of(samples of the class, class)."""
    seen, old, _ = split(steps)
    present = sorted(set(targets))
    if not old:
        return 0.0
    total = 0.0
    for k in present:
        members = [i for i, y in enumerate(targets) if y == k]
        total += sum(w[i] for i in members) / len(members) * value_of(members, k)
    return total / (len(present) if average == "present" else len(seen))


def sigmoid_relation_distillation(logits, targets, teacher, steps, average, w=None):
    seen, _, _ = split(steps)
    q = mixed_targets(targets, teacher, steps)
    if w is None:
        w = weights_of(
            [sigmoid(-row[y]) for row, y in zip(logits, targets, strict=True)], targets, steps
        )

    def value(members, _):
        up = mean_of([q[i] for i in members], seen)
        p = mean_of([[sigmoid(v) for v in logits[i]] for i in members], seen)
        not_p = mean_of([[sigmoid(-v) for v in logits[i]] for i in members], seen)  # 1 - p, exactly
        return sum(kl({1: up[c], 0: 1 - up[c]}, {1: p[c], 0: not_p[c]}) for c in seen) / len(seen)

    return over_classes(value, targets, steps, w, average)


def separated_relation_distillation(logits, targets, teacher, steps, average, w=None):
    _, _, new = split(steps)
    w = weights_of(separated_gradient(logits, targets, steps), targets, steps) if w is None else w

    def value(members, k):
        total = 0.0
        for block in blocks(steps)[:-1]:
            pair = (
                mean_of([softmax(rows[i], block) for i in members], block)
                for rows in (teacher, logits)
            )
            total += kl(*pair)
        if k in new:
            total += kl(
                {c: float(c == k) for c in new},
                mean_of([softmax(logits[i], new) for i in members], new),
            )
        return total

    return over_classes(value, targets, steps, w, average)


def nca(row, y, columns, form, margin, scale):
    others = sum(math.exp(row[c]) for c in columns if c != y)
    if form == "code":
        return -row[y] + math.log(math.exp(max(row[c] for c in columns)) + others)
    return max(0.0, -(row[y] - scale * margin) + math.log(others)) if others else 0.0


def unit(vector):
    length = math.sqrt(sum(v * v for v in vector))
    return [v / length for v in vector]


def distance(a, b):
    return math.sqrt(sum((x - y) ** 2 for x, y in zip(unit(a), unit(b), strict=True)))


def cosine(a, b):
    return sum(x * y for x, y in zip(unit(a), unit(b), strict=True))


def pod_vector(sample):
    """[Σ_w a, Σ_h a] of the squares."""
    by_row = [sum(v * v for v in row) for channel in sample for row in channel]
    return by_row + [
        sum(row[w] ** 2 for row in channel) for channel in sample for w in range(len(channel[0]))
    ]


def pod_spatial(maps, teacher_maps):
    total = 0.0
    for batch, other in zip(maps, teacher_maps, strict=True):
        for a, b in zip(batch, other, strict=True):
            total += distance(pod_vector(a), pod_vector(b)) / len(batch) / len(maps)
    return total


def importance_distillation(maps, teacher_maps, importance):
    total = 0.0
    for batch, other, weights in zip(maps, teacher_maps, importance, strict=True):
        for a, b in zip(batch, other, strict=True):
            for c, weight in enumerate(weights):
                pair = ([v * v for row in sample[c] for v in row] for sample in (a, b))
                total += weight * distance(*pair) / len(batch) / len(weights) / len(maps)
    return total


def cross_space_clustering(features, teacher, targets):
    total = 0.0
    for f, y in zip(features, targets, strict=True):
        for other, label in zip(teacher, targets, strict=True):
            total += (1 if y == label else -1) * (1 - cosine(f, other)) / len(targets) ** 2
    return total


def controlled_transfer(features, teacher, targets, steps, temperature, reduction):
    _, old, _ = split(steps)
    new_rows, old_rows = (
        [i for i, y in enumerate(targets) if y not in old],
        [i for i, y in enumerate(targets) if y in old],
    )
    total = 0.0
    for i in new_rows:
        if old_rows:
            pair = (
                softmax([cosine(f[i], g) / temperature for g in f], old_rows)
                for f in (teacher, features)
            )
            total += (
                temperature**2
                * kl(*pair)
                / len(new_rows)
                / (len(old_rows) if reduction == "elements" else 1)
            )
    return total


def class_weights(counts, steps, beta):
    seen, _, _ = split(steps)
    raw = {c: (1 - beta) / (1 - beta**n) for c, n in enumerate(counts) if c in seen}
    mean = sum(raw.values()) / len(raw)
    return [raw[c] / mean if c in raw else 1.0 for c in range(len(steps))]


def compression(logits, teacher, steps, weights, temperature):
    seen, _, _ = split(steps)
    total = 0.0
    for row, known in zip(logits, teacher, strict=True):
        r = {c: weights[c] * p for c, p in softmax(scaled(known, temperature), seen).items()}
        p = softmax(scaled(row, temperature), seen)
        total -= sum(r[c] / sum(r.values()) * math.log(p[c]) for c in seen) / len(logits)
    return total
