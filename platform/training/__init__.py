"""Online training: rollouts, advantages, objectives, methods, weight sync."""
