import torch

from avalanche_hfc import forgetting_compensation, relation_distillation

steps = torch.tensor([0, 0, 1, 1, -1])  # classes 0 and 1 are old, 2 and 3 new, 4 is yet to come
logits = torch.randn(32, 5, requires_grad=True)  # student
targets = torch.randint(4, (32,))
teacher_logits = torch.randn(32, 2)  # the model of the previous step, which knows two classes
loss = forgetting_compensation(logits, targets, steps) + relation_distillation(
    logits, targets, teacher_logits, steps
)
loss.backward()
