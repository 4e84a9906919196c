"""The recall task: sequences of key/value pairs, filler and questions, and the vocabulary that they are written in.

A pair is two tokens, <kI> <vN>. A question is the key alone, again, and the token after it must be the value of that pair. No key occurs in
two pairs of a sequence and none is asked twice, so the answer stands after its key exactly once before the question.
"""

import numpy as np

VOCABULARY = 2048
PAD, BOS, EOS = 0, 1, 2
FIRST_KEY, KEYS = 16, 1008
FIRST_VALUE, VALUES = 1024, 128
FIRST_FILLER, FILLERS = 1536, 512
TRAINING_DENSITY = 0.9  # at most this share of a sequence is pairs and questions
KEY_SHARE = 0.9  # at most this share of the keys is used in one sequence


def token_name(token):
    """The text of a token; every id has one."""
    special = {PAD: "<pad>", BOS: "<bos>", EOS: "<eos>"}
    if token in special:
        return special[token]
    for first, count, letter in ((FIRST_KEY, KEYS, "k"), (FIRST_VALUE, VALUES, "v"), (FIRST_FILLER, FILLERS, "f")):
        if first <= token < first + count:
            return f"<{letter}{token - first}>"
    return f"<unused{token}>"


def interleave(rng, pairs, questions, length, pair_time, question_time):
    """One sequence of exactly `length` tokens: pairs, questions (of the first pairs of the list) and filler in the order of their times.

    Returns tokens, the positions whose next token is an answer, and for each the distance back to the value it asks for.
    """
    free = length - 1 - 2 * pairs - 2 * questions
    if free < 0:
        raise ValueError(f"{pairs} pairs and {questions} questions do not fit in {length} tokens")
    key = FIRST_KEY + rng.choice(KEYS, size=pairs, replace=False)
    value = FIRST_VALUE + rng.integers(0, VALUES, size=pairs)
    time = np.concatenate([pair_time, question_time, rng.random(free)])
    size = np.concatenate([np.full(pairs + questions, 2), np.ones(free, dtype=np.int64)])
    order = np.argsort(time, kind="stable")
    start = np.empty(len(time), dtype=np.int64)
    start[order] = 1 + np.concatenate([[0], np.cumsum(size[order])[:-1]])

    tokens = np.empty(length, dtype=np.int64)
    tokens[0] = BOS
    at, ask = start[:pairs], start[pairs : pairs + questions]
    tokens[at], tokens[at + 1] = key, value
    tokens[ask], tokens[ask + 1] = key[:questions], value[:questions]
    tokens[start[pairs + questions :]] = FIRST_FILLER + rng.integers(0, FILLERS, size=free)
    return tokens, ask, ask - (at[:questions] + 1)


def training_sequence(rng, length):
    """Pairs and questions mixed, at every distance from next to the pair to the whole sequence."""
    pairs = min(int(KEYS * KEY_SHARE), int((length - 1) * rng.uniform(0.7, TRAINING_DENSITY) / 4))
    pair_time = rng.random(pairs) * rng.uniform(0.5, 1.0)
    question_time = pair_time + (1 - pair_time) * rng.random(pairs)
    return interleave(rng, pairs, pairs, length, pair_time, np.nextafter(question_time, 2))


def training_batch(rng, length, batch):
    """tokens [batch, length] and a mask of the positions whose next token is an answer."""
    tokens = np.empty((batch, length), dtype=np.int64)
    mask = np.zeros((batch, length), dtype=bool)
    for row in range(batch):
        tokens[row], answer, _ = training_sequence(rng, length)
        mask[row, answer] = True
    return tokens, mask


def test_sequence(rng, length, questions):
    """Pairs over the whole text and all questions at its end: their distances cover the text evenly."""
    tail = 2 * questions
    pairs = min(int(KEYS * KEY_SHARE), int((length - 1 - tail) * 0.4))
    chosen = (np.arange(questions) + rng.random(questions)) / questions
    pair_time = np.concatenate([chosen, rng.random(pairs - questions)]) * (1 - tail / length)
    return interleave(rng, pairs, questions, length, pair_time, 1 + rng.random(questions))
