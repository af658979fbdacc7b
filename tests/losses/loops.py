"""The equations of the paper and of the released code as plain loops over samples, classes and steps, in float64 and without tensors."""

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
        sharpened.append(math.log(gradient**z + 1))
    result = []
    for s, y in zip(sharpened, targets, strict=True):
        own = [other for other, label in zip(sharpened, targets, strict=True) if steps[label] == steps[y]]
        mean = sum(own) / len(own)  # Eq. 8
        result.append(s / mean if mean > 0 else 1.0)
    return result


def forgetting_compensation(logits, targets, steps):
    """Eq. 9."""
    seen, _, _ = split(steps)
    loss = 0.0
    for row, y, w in zip(logits, targets, weights(logits, targets, steps), strict=True):
        loss += w * -math.log(softmax(row, seen)[y])
    return loss / len(targets)


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


def relation_distillation(logits, targets, teacher_logits, steps, normalise, average):
    """Eq. 10-13, KL(Ỹ ‖ P̃)."""
    seen, old, _ = split(steps)
    if not old:
        return 0.0
    w = weights(logits, targets, steps)
    loss = 0.0
    present = sorted(set(targets))
    for k in present:
        members = [i for i, y in enumerate(targets) if y == k]
        prediction = {c: sum(softmax(logits[i], seen)[c] for i in members) / len(members) for c in seen}
        rows = [relation_target(teacher_logits[i], k, steps, normalise) for i in members]
        target = {c: sum(row[c] for row in rows) / len(members) for c in seen}
        divergence = sum(t * math.log(t / prediction[c]) for c, t in target.items() if t > 0)
        loss += sum(w[i] for i in members) / len(members) * divergence
    return loss / (len(present) if average == "present" else len(seen))


def bce(logit, label):
    return -label * math.log(sigmoid(logit)) - (1 - label) * math.log(sigmoid(-logit))


def official_hfc(logits, targets, teacher_logits, steps):
    """The released code's loss; teacher_logits None in the first step."""
    seen, old, _ = split(steps)
    b, num_seen = len(targets), len(seen)
    onehot = [[1.0 if c == y else 0.0 for c in range(len(steps))] for y in targets]
    if teacher_logits is None:
        return sum(bce(logits[i][c], onehot[i][c]) for i in range(b) for c in seen) / (b * num_seen)
    z = len(old) / num_seen
    mixed = [[sigmoid(teacher_logits[i][c]) if c in old else onehot[i][c] for c in range(len(steps))] for i in range(b)]
    loss, w2 = 0.0, []
    for i, r in enumerate(weights(logits, targets, steps)):
        if targets[i] in old:
            first, second = math.sqrt(1 - z) * min(max(r, 0.5), 1.2), z * min(max(r, 0.5), 1.2)
        else:
            first, second = (1 - z) * min(max(r, 0.5), 1.0), 0.8 * z
        w2.append(second)
        for c in seen:
            loss += (first * bce(logits[i][c], onehot[i][c]) + second * bce(logits[i][c], mixed[i][c])) / (b * num_seen)
    present = sorted(set(targets))
    for k in present:
        members = [i for i, y in enumerate(targets) if y == k]
        weight = sum(w2[i] for i in members) / len(members)
        for c in seen:
            logit = sum(logits[i][c] for i in members) / len(members)
            label = sum(mixed[i][c] for i in members) / len(members)
            loss += 0.5 * weight * bce(logit, label) / (len(present) * num_seen)
    return loss
