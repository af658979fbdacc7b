"""What the strategies share: template, objective, phases, state, heads."""
