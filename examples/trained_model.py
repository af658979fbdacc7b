import torch
from PIL import Image

from avalanche_hfc import load_run

trained = load_run("runs/folder-b0-t2-hfc@demo/0")
images = trained.transform(Image.open("photos/ant/0.jpg")).unsqueeze(0)  # (1, c, height, width)
with torch.no_grad():
    probabilities = trained.model(images).softmax(1)[0]
    features = trained.embed(images)  # (1, D)
best = probabilities.argmax()
print(f"predicted {trained.class_names[best]} ({probabilities[best]:.0%})")
print("classes of the first step:", [name for name, step in trained.steps.items() if step == 0])
print("features:", features.shape, "exemplars:", trained.exemplars)
