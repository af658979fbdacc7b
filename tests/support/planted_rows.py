"""Committed rows of real-image runs with planted accuracies, written without training."""

import csv
import statistics

STEPS = (
    "recipe seed step classes images accuracy accuracy_nme average forgetting fh seconds".split()
)
RUNS = (
    "recipe seed average last average_nme last_nme forgetting fh seconds weights avalanche_hfc "
    "avalanche-lib torch torchvision timm numpy python machine data finished"
).split()
CLASSES = "recipe seed step class name brought_in correct correct_nme total".split()
PER_STEP = 4  # classes


def write(folder, lasts, *, fh=None, mapped=()):
    """Rows of runs.

    Args:
        folder: Where they go.
        lasts: (recipe, seed) to the last accuracy in percent; each step before is 5 higher.
        fh: Recipe to its FH × 1000; 60 elsewhere.
        mapped: Recipes with rows of classes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = {"runs": [], "steps": [], "classes": []}
    for (recipe, seed), last in lasts.items():
        known = {"recipe": recipe, "seed": seed}
        joint = "-t1-joint" in recipe
        accuracies = [last / 100 + 0.05 * back for back in ([0] if joint else [2, 1, 0])]
        spread = (fh or {}).get(recipe, 60)
        for step, accuracy in enumerate(accuracies):
            average = "" if joint else statistics.mean(accuracies[: step + 1])
            rows["steps"].append(
                known
                | {
                    "step": step,
                    "classes": PER_STEP * (step + 1),
                    "images": 100,
                    "accuracy": accuracy,
                    "accuracy_nme": accuracy / 2,
                    "average": average,
                    "forgetting": 0.1,
                    "fh": spread / 1000,
                    "seconds": 36.0,
                }
            )
            if recipe in mapped:
                rows["classes"] += [
                    known
                    | {
                        "step": step,
                        "class": own,
                        "name": f"class {own}",
                        "brought_in": own // PER_STEP,
                        "correct": round(50 * accuracy) - own // 2,
                        "total": 50,
                    }
                    for own in range(PER_STEP * (step + 1))
                ]
        rows["runs"].append(
            known
            | {
                "average": "" if joint else 100 * statistics.mean(accuracies),
                "last": last,
                "average_nme": "" if joint else 50 * statistics.mean(accuracies),
                "last_nme": last / 2,
                "forgetting": 10.0,
                "fh": spread,
                "seconds": 36.0 * len(accuracies),
                "machine": "a machine",
            }
        )
    for name, columns in {"runs": RUNS, "steps": STEPS, "classes": CLASSES}.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows[name])
    return folder
