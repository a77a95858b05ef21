"""Names of what can be played."""

WHOLE_GAME = "game"
STAGES = tuple(f"{world}-{stage}" for world in range(1, 9) for stage in range(1, 5))
