"""The probabilities of a greedy rule over many rounds."""

from ..compile import jit
from ..decide import choose_best, clip_to_floor


@jit
def greedy_probabilities(scores, allowed, floor, out):
    """out[t, a]: the best of the allowed actions by scores[t], clipped to the floor; equal scores share."""
    for t in range(len(scores)):
        choose_best(scores[t], allowed[t], out[t])
        clip_to_floor(out[t], allowed[t], floor)
