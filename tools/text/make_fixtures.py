#!/usr/bin/env python3
"""Writes tests/text/: inputs for the text tests, and what the Python packages `tokenizers` and `transformers` make of them.

    make_fixtures.py --gguf SmolLM2-135M-Instruct.Q4_1.gguf [--qwen3_5 DIR]

DIR holds tokenizer.json and chat_template.jinja of Qwen3.5; neither is copied, only what the oracle says about them.
Needs tokenizers, transformers, jinja2, gguf. Everything is deterministic; the versions used are written to versions.json.
"""
import argparse
import collections
import json
import pathlib
import random
import struct

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import corpus
import template_fixtures

OUT = pathlib.Path(__file__).resolve().parents[2] / 'tests' / 'text'

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN35 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

# tokenizer.ggml.pre: (normalizer, steps before ByteLevel, ByteLevel splits itself, ignore_merges, adds BOS)
GGUF_PRE = {
    'gpt-2': (None, [], True, False, False),
    'smollm': (None, [pre_tokenizers.Digits(individual_digits=True)], True, False, False),
    'starcoder': (None, [pre_tokenizers.Digits(individual_digits=True)], True, False, False),
    'refact': (None, [pre_tokenizers.Digits(individual_digits=True)], True, False, False),
    'llama-bpe': (None, [pre_tokenizers.Split(Regex(LLAMA3), 'isolated')], False, True, True),
    'llama3': (None, [pre_tokenizers.Split(Regex(LLAMA3), 'isolated')], False, True, True),
    'llama-v3': (None, [pre_tokenizers.Split(Regex(LLAMA3), 'isolated')], False, True, True),
    'qwen2': (normalizers.NFC(), [pre_tokenizers.Split(Regex(QWEN2), 'isolated')], False, False, False),
    'qwen35': (normalizers.NFC(), [pre_tokenizers.Split(Regex(QWEN35), 'isolated')], False, False, False),
}


def write_json(name, value):
    text = json.dumps(value, ensure_ascii=False, separators=(',', ':'), sort_keys=isinstance(value, dict))
    (OUT / name).write_text(text + '\n', encoding='utf-8')


def write_ids(name, sequences):
    """LEB128: for each sequence its length and then its ids."""
    out = bytearray()

    def put(n):
        while n >= 0x80:
            out.append(n & 0x7F | 0x80)
            n >>= 7
        out.append(n)

    for ids in sequences:
        put(len(ids))
        for i in ids:
            put(i)
    (OUT / name).write_bytes(bytes(out))


def encode(tokenizer, text, literal=False, special=False):
    tokenizer.encode_special_tokens = literal
    return tokenizer.encode(text, add_special_tokens=special).ids


def write_expected(name, tokenizer, strings, add_special_differs=False):
    tokenizer.no_truncation()
    tokenizer.no_padding()
    rng = random.Random(99)
    ids = [encode(tokenizer, s) for s in strings]
    write_ids(f'{name}.ids.bin', ids)
    expected = {'decoded': {}, 'literal': {}, 'with_special': {}, 'skipped': {}, 'random': []}
    for n, (s, i) in enumerate(zip(strings, ids)):
        plain = tokenizer.decode(i, skip_special_tokens=False)
        if plain != s:
            expected['decoded'][n] = plain
        literal = encode(tokenizer, s, literal=True)
        if literal != i:
            expected['literal'][n] = literal
        skipped = tokenizer.decode(i, skip_special_tokens=True)
        if skipped != plain:
            expected['skipped'][n] = skipped
        with_special = encode(tokenizer, s, special=True)
        if with_special != i and n % 20 == 0:
            expected['with_special'][n] = with_special
    # Sequences no text encodes to: half characters, special tokens in between, ids that do not exist.
    size = tokenizer.get_vocab_size()
    short = [v for t, v in tokenizer.get_vocab().items() if len(t) == 1 or t.startswith('<')]
    short.sort()
    for n in range(250):
        pool = short if n % 2 else range(size + 3)
        picked = [rng.choice(pool) for _ in range(rng.randint(1, 30))]
        expected['random'].append([picked, tokenizer.decode(picked, skip_special_tokens=False), tokenizer.decode(picked, skip_special_tokens=True)])
    write_json(f'{name}.expected.json', expected)


def byte_level_bpe(vocab, merges, pre, added, bos=None):
    normalizer, steps, own_regex, ignore_merges, _ = GGUF_PRE[pre]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=ignore_merges))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=own_regex)])
    tokenizer.decoder = decoders.ByteLevel()
    for content, special in added:
        token = AddedToken(content, normalized=False, special=special)
        (tokenizer.add_special_tokens if special else tokenizer.add_tokens)([token])
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(single=f'{bos} $A', pair=f'{bos} $A $B', special_tokens=[(bos, tokenizer.token_to_id(bos))])
    return tokenizer


def smollm2(path, strings):
    from gguf import GGUFReader
    fields = GGUFReader(path).fields
    tokens = fields['tokenizer.ggml.tokens'].contents()
    merges = [tuple(m.split(' ')) for m in fields['tokenizer.ggml.merges'].contents()]
    types = fields['tokenizer.ggml.token_type'].contents()
    ids = {t: i for i, t in enumerate(tokens)}
    # Merge number i makes token number base + i: two 16-bit ids per merge carry the whole vocabulary.
    base = len(tokens) - len(merges)
    assert all(tokens[base + i] == a + b for i, (a, b) in enumerate(merges)) and len(tokens) < 65536
    (OUT / 'smollm2.merges.bin').write_bytes(b''.join(struct.pack('<HH', ids[a], ids[b]) for a, b in merges))
    write_json('smollm2.base.json', {'tokens': tokens[:base], 'types': types[:base], 'bos': 1, 'eos': 2, 'unk': 0, 'pad': 2})
    added = [(t, True) for t, kind in zip(tokens, types) if kind == 3]
    write_expected('smollm2', byte_level_bpe(ids, merges, 'smollm', added), strings)


SMALL_ADDED = [('<|endoftext|>', True), ('<|im_start|>', True), ('<|im_end|>', True), ('<tool_call>', False), ('</tool_call>', False), ('<think>', False), ('</think>', False)]


def small_qwen(strings):
    """A byte-level BPE in the style of Qwen3.5, trained here on our own strings."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN35), 'isolated'), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=4000, min_frequency=2, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False)
    tokenizer.train_from_iterator(strings, trainer)
    vocab = tokenizer.get_vocab(with_added_tokens=False)
    merges = [tuple(m) for m in json.loads(tokenizer.to_str())['model']['merges']]
    made = byte_level_bpe(vocab, merges, 'qwen35', SMALL_ADDED)
    (OUT / 'small_qwen.tokenizer.json').write_text(made.to_str(pretty=False) + '\n', encoding='utf-8')
    write_expected('small_qwen', made, strings)
    return vocab, merges


def gguf_pre(vocab, merges, strings):
    """The same small vocabulary under every pre-tokeniser that a GGUF file may name."""
    chosen = list(range(0, len(strings), 5))
    write_json('gguf_pre.json', {'strings': chosen, 'pre': list(GGUF_PRE), 'added': SMALL_ADDED})
    for pre, settings in GGUF_PRE.items():
        tokenizer = byte_level_bpe(vocab, merges, pre, SMALL_ADDED, bos='<|im_start|>' if settings[4] else None)
        write_ids(f'gguf_pre.{pre}.ids.bin', [encode(tokenizer, strings[n], special=True) for n in chosen])


def small_fallback(strings):
    """SentencePiece style: spaces become U+2581, what is not in the vocabulary becomes byte tokens."""
    specials = ['<unk>', '<s>', '</s>'] + [f'<0x{b:02X}>' for b in range(256)]
    tokenizer = Tokenizer(models.BPE(unk_token='<unk>', fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend('▁'), normalizers.Replace(' ', '▁')])
    texts = [s[:400] for s in strings[:600]]
    # The trainer breaks ties between equally frequent characters by chance, so the alphabet is chosen here.
    counts = collections.Counter(c for s in texts for c in s.replace(' ', '▁'))
    alphabet = sorted(counts, key=lambda c: (-counts[c], c))[:120]
    trainer = trainers.BpeTrainer(vocab_size=900, min_frequency=2, initial_alphabet=alphabet, limit_alphabet=len(alphabet), show_progress=False, special_tokens=specials)
    tokenizer.train_from_iterator(texts, trainer)
    model = json.loads(tokenizer.to_str())['model']
    made = Tokenizer(models.BPE(vocab=model['vocab'], merges=[tuple(m) for m in model['merges']], unk_token='<unk>', fuse_unk=True, byte_fallback=True))
    made.normalizer = tokenizer.normalizer
    made.decoder = decoders.Sequence([decoders.Replace('▁', ' '), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(' ', 1, 0)])
    made.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in specials[:3]])
    made.post_processor = processors.TemplateProcessing(single='<s> $A', pair='<s> $A <s> $B', special_tokens=[('<s>', 1)])
    (OUT / 'small_fallback.tokenizer.json').write_text(made.to_str(pretty=False) + '\n', encoding='utf-8')
    write_expected('small_fallback', made, strings)


def utf8_replacement():
    """Byte strings, many of them near-valid UTF-8, and Python's reading of them with errors='replace'."""
    rng = random.Random(5)
    tricky = [b'\xc0\x80', b'\xe0\x80\x80', b'\xed\xa0\x80', b'\xf0\x80\x80\x80', b'\xf4\x90\x80\x80', b'\xf5\x80\x80\x80', b'\xe2\x82', b'\xf0\x9f\x98', b'\xf0\x9f', b'\xf0', b'\xc2', b'\x80', b'\xff\xfe', b'\xe2\x28\xa1', b'\xf0\x9f\x98a', b'\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41', b'']
    pieces = tricky + ['é'.encode(), '日'.encode(), '😀'.encode(), b'a', '\u0301'.encode()]
    out = list(tricky)
    for _ in range(250):
        out.append(b''.join(rng.choice(pieces) for _ in range(rng.randint(1, 6))))
    for _ in range(250):
        out.append(bytes(rng.choice([rng.randint(0, 255), rng.randint(0x80, 0xBF), rng.randint(0xC0, 0xF7)]) for _ in range(rng.randint(1, 12))))
    write_json('utf8.json', [[b.hex(), b.decode('utf-8', errors='replace')] for b in out])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--gguf', required=True)
    parser.add_argument('--qwen3_5')
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    strings = corpus.strings()
    write_json('strings.json', strings)
    smollm2(options.gguf, strings)
    vocab, merges = small_qwen(strings)
    gguf_pre(vocab, merges, strings)
    small_fallback(strings)
    utf8_replacement()
    qwen_template = None
    if options.qwen3_5:
        folder = pathlib.Path(options.qwen3_5)
        write_expected('qwen3_5', Tokenizer.from_file(str(folder / 'tokenizer.json')), strings)
        qwen_template = (folder / 'chat_template.jinja').read_text(encoding='utf-8')
    template_fixtures.write(OUT, qwen_template)
    import jinja2
    import transformers
    write_json('versions.json', {'tokenizers': tokenizers.__version__, 'transformers': transformers.__version__, 'jinja2': jinja2.__version__})


if __name__ == '__main__':
    main()
