"""What a command asks for: plan, predict, learn, a table, a self-test."""
