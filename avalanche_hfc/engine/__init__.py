"""From a recipe to rows: build, schedule, run, observe. Modules load when they are asked for: some
need no torch.
"""
